//! Where a file is to be: it is written beside its place and put there when it is whole, so that a failure leaves what was there.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Links that lead to one another, after which they are taken to go round: as many as Linux follows.
const MAX_LINKS: usize = 40;

/// A place of a file, and the file beside it that is to take it. What was made there goes when this is dropped.
pub struct Place {
    path: PathBuf,
    part: PathBuf,
    /// Whether the file beside it is there.
    made: bool,
}

impl Place {
    /// The place that a path means: of a link, what it leads to, which need not be there. Nothing is made yet.
    ///
    /// # Errors
    /// A path that names no file, or whose folder isn't there; links that go round.
    pub fn of(path: &Path) -> io::Result<Place> {
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(e) => new(&behind_links(path, e)?)?,
        };
        let mut part = path.clone().into_os_string();
        part.push(format!(".{}.part", std::process::id()));
        Ok(Place {
            path,
            part: PathBuf::from(part),
            made: false,
        })
    }

    /// The same for every path that means this place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file beside it, empty, with the rights of what is there.
    ///
    /// # Errors
    /// As the system says.
    pub fn create(&mut self) -> io::Result<File> {
        let file = File::create(&self.part)?;
        self.made = true;
        if let Ok(told) = self.path.metadata() {
            file.set_permissions(told.permissions())?;
        }
        Ok(file)
    }

    /// Puts what was made in its place.
    ///
    /// # Errors
    /// As the system says; what was there stays then.
    pub fn put(mut self) -> io::Result<()> {
        std::fs::rename(&self.part, &self.path)?;
        self.made = false;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.made {
            // Best effort: what is left is a file that nobody reads.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// Where a path leads that could not be followed to a file (`said`): a link to a file that isn't there yet stays a link, or the file
/// would take its place.
fn behind_links(path: &Path, said: io::Error) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        if !path.is_symlink() {
            return Ok(path);
        }
        // Of an absolute one, only itself is left.
        let to = path.read_link()?;
        path = path.parent().unwrap_or(Path::new("")).join(to);
    }
    Err(said)
}

/// The place of a file that isn't there yet.
fn new(path: &Path) -> io::Result<PathBuf> {
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
        return Err(io::Error::other("this names no file"));
    };
    let here = folder.as_os_str().is_empty();
    let folder = if here { Path::new(".") } else { folder };
    if !folder.is_dir() {
        let text = format!("there is no folder {}", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(folder.canonicalize()?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_put_goes_and_what_is_put_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        std::fs::write(&path, "old").unwrap();
        let mut place = Place::of(&path).unwrap();
        io::Write::write_all(&mut place.create().unwrap(), b"new").unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), names()), (b"old".into(), 2));
        drop(place);
        assert_eq!(names(), 1);
        let mut place = Place::of(&path).unwrap();
        io::Write::write_all(&mut place.create().unwrap(), b"new").unwrap();
        place.put().unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), names()), (b"new".into(), 1));
    }

    #[test]
    #[cfg(unix)]
    fn a_link_to_no_file_is_followed_and_stays() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        // By way of another link, from one folder to the next, by relative and whole paths.
        symlink("d/second", at("first")).unwrap();
        symlink(at("target"), at("d/second")).unwrap();
        let mut place = Place::of(&at("first")).unwrap();
        assert_eq!(place.path(), Place::of(&at("target")).unwrap().path());
        io::Write::write_all(&mut place.create().unwrap(), b"new").unwrap();
        place.put().unwrap();
        assert_eq!(std::fs::read(at("target")).unwrap(), b"new");
        assert!(at("first").is_symlink() && at("d/second").is_symlink());
        symlink("no/f", at("nowhere")).unwrap();
        let nowhere = Place::of(&at("nowhere")).err().unwrap();
        assert!(nowhere.to_string().contains("no folder"), "{nowhere}");
        symlink("round", at("round")).unwrap();
        let round = Place::of(&at("round")).err().unwrap();
        assert!(round.to_string().contains("symbolic links"), "{round}");
    }

    #[test]
    fn paths_of_one_place_are_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| Place::of(&dir.path().join(path)).unwrap().path().to_owned();
        assert_eq!(at("f"), at("./f"));
        assert_ne!(at("f"), at("g"));
        std::fs::write(at("f"), "").unwrap();
        assert_eq!(at("f"), at("./f"));
        let here = Place::of(Path::new("no-such-file")).unwrap();
        assert_eq!(
            here.path(),
            Place::of(Path::new("./no-such-file")).unwrap().path()
        );
        let nowhere = Place::of(&dir.path().join("no/f")).err().unwrap();
        assert!(nowhere.to_string().contains("no folder"), "{nowhere}");
        assert!(Place::of(Path::new("no/such/..")).is_err());
    }
}
