//! How many threads to start with: one for each fast core that this process may use.
//!
//! Siblings of a core (SMT) count once: they share the units that products keep busy, and decode waits for
//! memory, which one thread a core already asks for all it can. Of a hybrid CPU only the fast cores count: all
//! threads meet several times a layer, so a slow core holds up the others more often than its share of the work
//! is worth. Threads are not pinned.

use super::MAX_THREADS;

/// A core with at least this part of the fastest one's capacity is fast: `NUMERATOR / DENOMINATOR`.
const FAST: (u64, u64) = (2, 3);

/// The CPUs that this process may use, at least 1: its affinity mask and, on Linux, the CPU limits of
/// its cgroups (v1 and v2, rounded down).
pub fn available_cpus() -> usize {
    std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(MAX_THREADS)
}

/// The default number of threads: the fast cores among [`available_cpus`]. Where the system doesn't say which
/// those are (only Linux does here), all of them.
pub fn default_threads() -> usize {
    let available = available_cpus();
    let cores = if cfg!(target_os = "linux") {
        fast_cores(|path| std::fs::read_to_string(path).ok())
    } else {
        None
    };
    cores.map_or(available, |cores| cores.clamp(1, available))
}

/// Fast cores of which at least one CPU is allowed; `None` if Linux' files don't say. `read` is given paths.
///
/// Intel's hybrid CPUs list the CPUs of their fast cores; on ARM each CPU has a capacity.
fn fast_cores(read: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let status = read("/proc/self/status")?;
    let allowed = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    let allowed = parse_list(allowed)?;
    let of_cpu = |cpu: usize, file: &str| read(&format!("/sys/devices/system/cpu/cpu{cpu}/{file}"));
    let mut fast = allowed.clone();
    if let Some(listed) = read("/sys/devices/cpu_core/cpus").and_then(|l| parse_list(&l)) {
        fast.retain(|cpu| listed.contains(cpu));
    } else {
        let capacity = |cpu: &usize| of_cpu(*cpu, "cpu_capacity")?.trim().parse::<u64>().ok();
        let all: Option<Vec<u64>> = allowed.iter().map(capacity).collect();
        if let Some(all) = all {
            let most = all.iter().copied().max()?;
            let enough = all.iter().map(|c| c * FAST.1 >= most * FAST.0);
            fast = allowed
                .iter()
                .copied()
                .zip(enough)
                .filter(|x| x.1)
                .map(|x| x.0)
                .collect();
        }
    }
    if fast.is_empty() {
        fast = allowed; // only slow ones are allowed: then they are what there is
    }
    let mut cores = fast
        .iter()
        .map(|cpu| of_cpu(*cpu, "topology/thread_siblings_list"))
        .collect::<Option<Vec<String>>>()?;
    cores.sort_unstable();
    cores.dedup();
    Some(cores.len())
}

/// The numbers of a list such as `0-3,8,10-11`; `None` for anything else.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.trim().parse().ok()?..=last.trim().parse::<usize>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A recorded machine: its files.
    struct Files(HashMap<String, String>);

    impl Files {
        /// `n` CPUs, all allowed; `sibling` gives the list of each one's core.
        fn new(allowed: &str, n: usize, siblings: impl Fn(usize) -> String) -> Files {
            let mut files = HashMap::new();
            let status = format!(
                "Name:\tminfer\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\nMems_allowed:\t1\n"
            );
            files.insert("/proc/self/status".to_owned(), status);
            for cpu in 0..n {
                let path =
                    format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                files.insert(path, siblings(cpu) + "\n");
            }
            Files(files)
        }

        fn with(mut self, path: &str, text: &str) -> Files {
            self.0.insert(path.to_owned(), text.to_owned());
            self
        }

        fn capacities(mut self, capacities: &[u64]) -> Files {
            for (cpu, c) in capacities.iter().enumerate() {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity");
                self.0.insert(path, format!("{c}\n"));
            }
            self
        }

        fn cores(&self) -> Option<usize> {
            fast_cores(|path| self.0.get(path).cloned())
        }
    }

    fn alone(cpu: usize) -> String {
        cpu.to_string()
    }

    #[test]
    fn siblings_of_a_core_count_once() {
        // A Ryzen 7 (8 cores, siblings 8 apart), a server whose siblings are neighbours, a virtual machine.
        let ryzen = |c: usize| format!("{},{}", c % 8, c % 8 + 8);
        assert_eq!(Files::new("0-15", 16, ryzen).cores(), Some(8));
        assert_eq!(Files::new("0,8", 16, ryzen).cores(), Some(1));
        assert_eq!(Files::new("0-3,12", 16, ryzen).cores(), Some(5));
        let pairs = |c: usize| format!("{}-{}", c / 2 * 2, c / 2 * 2 + 1);
        assert_eq!(Files::new("0-7", 8, pairs).cores(), Some(4));
        assert_eq!(Files::new("0-1", 2, alone).cores(), Some(2));
    }

    #[test]
    fn of_a_hybrid_cpu_the_fast_cores_count() {
        // A Core i7-12700K: 8 fast cores of two CPUs each, 4 slow ones.
        let i7 = |c: usize| match c {
            0..16 => format!("{}-{}", c / 2 * 2, c / 2 * 2 + 1),
            _ => c.to_string(),
        };
        let machine = |allowed| {
            Files::new(allowed, 20, i7)
                .with("/sys/devices/cpu_core/cpus", "0-15\n")
                .with("/sys/devices/cpu_atom/cpus", "16-19\n")
        };
        assert_eq!(machine("0-19").cores(), Some(8));
        assert_eq!(machine("14-19").cores(), Some(1));
        assert_eq!(machine("16-18").cores(), Some(3));
    }

    #[test]
    fn capacities_tell_big_cores_from_little_ones() {
        // An RK3588 (4 x A55, 4 x A76), a Snapdragon 8 Gen 2 (3 + 2 + 2 + 1), a Raspberry Pi 5.
        let rk3588 = [414, 414, 414, 414, 1024, 1024, 1024, 1024];
        assert_eq!(
            Files::new("0-7", 8, alone).capacities(&rk3588).cores(),
            Some(4)
        );
        assert_eq!(
            Files::new("0-3", 8, alone).capacities(&rk3588).cores(),
            Some(4)
        );
        let phone = [326, 326, 326, 779, 779, 780, 780, 1024];
        assert_eq!(
            Files::new("0-7", 8, alone).capacities(&phone).cores(),
            Some(5)
        );
        assert_eq!(
            Files::new("0-3", 4, alone).capacities(&[1024; 4]).cores(),
            Some(4)
        );
    }

    #[test]
    fn what_the_files_do_not_say_is_not_guessed() {
        assert_eq!(Files(HashMap::new()).cores(), None);
        assert_eq!(Files::new("0-3", 2, alone).cores(), None);
        assert_eq!(Files::new("0-x", 4, alone).cores(), None);
        assert!((1..=available_cpus()).contains(&default_threads()));
        assert_eq!(parse_list("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_list("\n"), Some(vec![]));
    }
}
