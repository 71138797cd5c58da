//! Where a file is to be: it is written beside its place and put there when it is whole, so that a failure leaves what was there.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A place of a file, and the file beside it that is to take it. What was made there goes when this is dropped.
pub struct Place {
    path: PathBuf,
    part: PathBuf,
    /// Whether the file beside it is there.
    made: bool,
}

impl Place {
    /// The place that a path means: of a link, what it leads to. Nothing is made yet.
    ///
    /// # Errors
    /// A path that names no file, or whose folder isn't there.
    pub fn of(path: &Path) -> io::Result<Place> {
        let path = path.canonicalize().or_else(|_| new(path))?;
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
