//! Which machines this CPU has, and running a kernel on one of them.

use super::{Lanes, Scalar};

/// An instruction set that [`Lanes`] is implemented on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Portable code without intrinsics; the meaning of every other.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The same with AVX-VNNI (the 256-bit dot product).
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// aarch64 with the dot product extension (`sdot`).
    Neon,
    /// aarch64 without it: widening multiplies.
    NeonNodot,
}

impl Isa {
    /// All of them, slowest first; the last one that a CPU has is its default.
    pub const ALL: [Isa; 6] = [
        Isa::Scalar,
        Isa::Avx2,
        Isa::AvxVnni,
        Isa::Avx512,
        Isa::NeonNodot,
        Isa::Neon,
    ];

    /// The name that `MINFER_CPU` takes.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
            Isa::NeonNodot => "neon-nodot",
        }
    }

    /// Whether this CPU (and the operating system's register saving) has it.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("fma") && has!("f16c");
            match self {
                Isa::Scalar => true,
                Isa::Avx2 => avx2,
                #[cfg(test)]
                Isa::AvxVnni if super::avx2::stand_in::needed() => avx2,
                Isa::AvxVnni => avx2 && has!("avxvnni"),
                Isa::Avx512 => {
                    avx2 && has!("avx512f")
                        && has!("avx512bw")
                        && has!("avx512vl")
                        && has!("avx512dq")
                        && has!("avx512vnni")
                }
                Isa::Neon | Isa::NeonNodot => false,
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            use std::arch::is_aarch64_feature_detected as has;
            match self {
                Isa::Scalar => true,
                Isa::NeonNodot => has!("neon"),
                Isa::Neon => has!("neon") && has!("dotprod"),
                Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 => false,
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            self == Isa::Scalar
        }
    }
}

/// Why a machine's name was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MachineError {
    /// Not a name of [`Isa::name`].
    #[error("unknown machine \"{name}\"; this CPU has: {available}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What could be asked for.
        available: String,
    },
    /// A known name that this CPU has no instructions for.
    #[error("this CPU lacks \"{name}\"; it has: {available}")]
    Lacking {
        /// What was asked for.
        name: String,
        /// What could be asked for.
        available: String,
    },
}

/// A machine that this CPU has: the value is the proof, as only detection makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    isa: Isa,
}

impl Machine {
    /// The fastest machine of this CPU.
    pub fn detect() -> Machine {
        let isa = Isa::ALL.into_iter().rfind(|i| i.is_available());
        Machine {
            isa: isa.unwrap_or(Isa::Scalar),
        }
    }

    /// The portable machine, which every CPU has.
    pub fn scalar() -> Machine {
        Machine { isa: Isa::Scalar }
    }

    /// All machines of this CPU, slowest first.
    pub fn available() -> Vec<Machine> {
        Isa::ALL
            .into_iter()
            .filter(|i| i.is_available())
            .map(|isa| Machine { isa })
            .collect()
    }

    /// The machine of this name ([`Isa::name`]); refused, with what there is, if this CPU lacks it.
    pub fn from_name(name: &str) -> Result<Machine, MachineError> {
        let isa = Isa::ALL.into_iter().find(|i| i.name() == name);
        if let Some(isa) = isa
            && isa.is_available()
        {
            return Ok(Machine { isa });
        }
        let names: Vec<_> = Machine::available().iter().map(|m| m.name()).collect();
        let (name, available) = (name.to_string(), names.join(", "));
        Err(match isa {
            Some(_) => MachineError::Lacking { name, available },
            None => MachineError::Unknown { name, available },
        })
    }

    /// Its instruction set.
    pub fn isa(self) -> Isa {
        self.isa
    }

    /// The name that `MINFER_CPU` takes.
    pub fn name(self) -> &'static str {
        self.isa.name()
    }

    /// Runs `k`, compiled for this machine.
    ///
    /// # Safety
    /// The kernel's own preconditions (pointers, lengths) hold. Its instructions exist: `self` is the proof.
    #[inline]
    pub unsafe fn run<K: Kernel>(self, k: K) -> K::Output {
        // SAFETY: a Machine exists only if its CPU features were detected; the kernel's own preconditions
        // are the caller's.
        unsafe {
            match self.isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => super::avx2::run_avx2(k),
                #[cfg(target_arch = "x86_64")]
                Isa::AvxVnni => super::avx2::run_avxvnni(k),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => super::avx512::run(k),
                #[cfg(target_arch = "aarch64")]
                Isa::Neon => super::neon::run_dot(k),
                #[cfg(target_arch = "aarch64")]
                Isa::NeonNodot => super::neon::run_nodot(k),
                _ => Scalar::call(k),
            }
        }
    }
}

/// A computation written once for all machines; its arguments are its fields.
pub trait Kernel {
    /// What it returns.
    type Output;

    /// The body; must be `#[inline(always)]` and call lane methods outside of closures, so that it is
    /// compiled with the machine's instructions.
    ///
    /// # Safety
    /// Runs on a CPU that has `L`'s instructions; pointers among the fields are valid as the kernel documents.
    unsafe fn run<L: Lanes>(self) -> Self::Output;
}

/// Writes a kernel as a function: `kernel! { /// doc pub unsafe fn name<L>(x: &[f32], …) -> f32 { body } }`
/// defines `pub unsafe fn name(machine: Machine, x: &[f32], …) -> f32`, whose body sees `L: Lanes`.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis unsafe fn $name:ident<$lanes:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::missing_safety_doc)] // each kernel's doc comment states its preconditions
        $vis unsafe fn $name(machine: $crate::lanes::Machine, $($arg: $ty),*) $(-> $ret)? {
            struct Args<T>(T);
            #[allow(unused_parens, unused_unsafe)] // a body may be safe code
            impl $crate::lanes::Kernel for Args<($($ty,)*)> {
                type Output = ($($ret)?);
                #[inline(always)]
                unsafe fn run<$lanes: $crate::lanes::Lanes>(self) -> Self::Output {
                    let ($($arg,)*) = self.0;
                    // SAFETY: the kernel's preconditions, which its caller upholds.
                    unsafe { $body }
                }
            }
            // SAFETY: the caller upholds the kernel's preconditions.
            unsafe { machine.run(Args(($($arg,)*))) }
        }
    };
}
pub(crate) use kernel;
