//! Files that jobs on nodes get before they begin, and leave when they have ended: what both sides do with one.
//!
//! A file arrives under another name in its folder, and gets its own when it is whole. The sender names its length in
//! no place: the last part says that it was whole.
//!
//! | file | contents |
//! |---|---|
//! | `host.rs` | the host: sends files to a node, and stores those that it has asked for |
//! | `node.rs` | the same on the node |

mod host;
mod node;

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use pipewright_os::base::error::Quoted;
use pipewright_os::base::private_file::{Distrust, Facts, OpenFolder, check_link, sync_folder};

use crate::wire::FilePart;

pub(crate) use host::{Fetching, Files, HostFiles, Sending, Tell};
pub(crate) use node::{FileOrder, NodeFiles};

/// The bytes in one part.
const PART_BYTES: usize = 128 << 10;

/// Sends a file in parts. `send` returns false if nobody wants the rest.
///
/// # Errors
/// The file is missing, no regular file, or cannot be read. Its end has not been sent then.
fn read_parts(path: &Path, mut send: impl FnMut(FilePart) -> bool) -> io::Result<()> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::Error::other("is a folder: name the files in it, or an archive of it"));
    }
    if !found.is_file() {
        // Not opened: that of a pipe would wait for the other side.
        return Err(Distrust::NotAFile.into());
    }
    let mut file = File::open(path)?;
    if !send(FilePart::Begin(Facts::of_file(&file)?.rights())) {
        return Ok(());
    }
    loop {
        let mut bytes = vec![0; PART_BYTES];
        let count = match file.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if count == 0 {
            send(FilePart::End(None));
            return Ok(());
        }
        bytes.truncate(count);
        if !send(FilePart::Bytes(bytes)) {
            return Ok(());
        }
    }
}

/// A file that has not arrived whole.
///
/// # Drop
/// Removes it.
#[derive(Debug)]
struct Arriving {
    folder: OpenFolder,
    path: PathBuf,
    /// The folders that were made for it.
    made: Vec<PathBuf>,
    name: OsString,
    /// Its name until it is whole.
    new: OsString,
    file: File,
}

impl Arriving {
    /// Creates a file beside the path, and the folders above it.
    ///
    /// # Errors
    /// The path names no file, or something else than a file has it; the file cannot be created; or its folder is
    /// reached by a link that another user has made.
    fn create(path: &Path, rights: u32) -> io::Result<Arriving> {
        let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
        let name = path.file_name().ok_or_else(no_name)?.to_owned();
        match fs::symlink_metadata(path) {
            // A name that leads elsewhere is replaced, and not followed.
            Ok(found) if !found.is_file() && !found.is_symlink() => {
                return Err(Distrust::NotAFile.into());
            }
            _ => {}
        }
        let above = folder_of(path);
        check_link(above)?;
        let missing = above.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists());
        let made = missing.map(Path::to_owned).collect();
        fs::create_dir_all(above)?;
        let folder = OpenFolder::open_named(above)?;
        let mut new = OsString::from(".");
        new.push(&name);
        new.push(format!("-new-{:016x}", RandomState::new().hash_one(0)));
        let file = folder.create_with_rights(&new, rights)?;
        Ok(Arriving { folder, path: path.to_owned(), made, name, new, file })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Gives the file its name. With `is_durable` it is on disk then.
    fn finish(self, is_durable: bool) -> io::Result<()> {
        if is_durable {
            self.file.sync_all()?;
        }
        self.folder.rename(&self.new, &self.name)?;
        if is_durable {
            // Also the names of new folders.
            let mut named = std::iter::once(&self.path).chain(&self.made);
            named.try_for_each(|it| sync_folder(folder_of(it)))?;
        }
        Ok(())
    }
}

/// Returns the folder that has the name of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // Ignored: after `finish` nothing has the name, and a file that stays is whole for nobody.
        let _ = self.folder.remove(&self.new);
    }
}

/// Stores the parts of one file after the other.
#[derive(Debug, Default)]
struct Store {
    arriving: Option<Arriving>,
    /// The file cannot be stored: the rest of it is passed over.
    failure: Option<io::Error>,
}

impl Store {
    /// Stores a part of the file with that path. With its last part, returns the result, whose error says which file it
    /// is. `verb`: what failed then.
    fn add(
        &mut self,
        part: FilePart,
        path: &Path,
        verb: &str,
        is_durable: bool,
    ) -> Option<Result<(), String>> {
        let done = match part {
            FilePart::Begin(rights) => {
                // A second one replaces the first, which is dropped before.
                self.arriving = None;
                Arriving::create(path, rights).map(|file| self.arriving = Some(file))
            }
            FilePart::Bytes(bytes) => {
                self.arriving.as_mut().map_or(Ok(()), |file| file.write(&bytes))
            }
            FilePart::End(reason) => {
                let arrived = self.arriving.take();
                let failure = match (self.failure.take(), reason, arrived) {
                    (Some(error), ..) => error.to_string(),
                    (None, Some(reason), _) => reason,
                    (None, None, Some(file)) => match file.finish(is_durable) {
                        Ok(()) => return Some(Ok(())),
                        Err(error) => error.to_string(),
                    },
                    (None, None, None) => "it has not begun".to_owned(),
                };
                let failure = format!("cannot {verb} {}: {failure}", Quoted(path.as_os_str()));
                return Some(Err(failure));
            }
        };
        if let Err(error) = done {
            self.arriving = None;
            self.failure.get_or_insert(error);
        }
        None
    }
}

#[cfg(test)]
mod tests;
