//! The files that the command line names, each with its ticket.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::parse::UsageError;
use crate::source::{ENDINGS, Source};

/// A ticket and its source.
type Named = (Vec<u8>, Source);

/// Reads `[NAME=]FILE`, a directory of files, or a pattern for them that no shell has expanded.
pub(super) fn named_files(arg: &OsStr) -> Result<Vec<Named>> {
    if Path::new(arg).is_dir() {
        return files_of(Path::new(arg));
    }
    let named = named_file(arg);
    let is_there = matches!(&named, Ok((_, Source::File(path))) if path.exists());
    match arg.to_str().filter(|text| text.contains(['*', '?', '['])) {
        Some(pattern) if !is_there => matching(pattern),
        _ => Ok(vec![named?]),
    }
}

/// The files and directories that match `pattern`, as a shell finds them; `**` goes through
/// directories.
fn matching(pattern: &str) -> Result<Vec<Named>> {
    let failed = || format!("cannot find {pattern:?}");
    let options = glob::MatchOptions {
        require_literal_separator: true,
        require_literal_leading_dot: true,
        ..glob::MatchOptions::default()
    };
    let mut files = Vec::new();
    for path in glob::glob_with(pattern, options).with_context(failed)? {
        let path = path.with_context(failed)?;
        if path.is_dir() {
            files.append(&mut files_of(&path)?);
        } else {
            files.push(named_file(path.as_os_str())?);
        }
    }
    if files.is_empty() {
        bail!("no file matches {pattern:?}");
    }
    Ok(files)
}

/// The files of a directory that are tables by their endings: at least one.
fn files_of(folder: &Path) -> Result<Vec<Named>> {
    let files = tables_of(folder)?;
    if files.is_empty() {
        bail!(
            "{} is a directory without a file that ends in .{}",
            folder.display(),
            ENDINGS.join(", .")
        );
    }
    Ok(files)
}

/// The files of a directory that are tables by their endings.
pub(super) fn tables_of(folder: &Path) -> Result<Vec<Named>> {
    let failed = || format!("cannot read {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        let ending = path.extension().and_then(OsStr::to_str);
        if ending.is_some_and(|ending| ENDINGS.contains(&ending)) && path.is_file() {
            files.push(named_file(path.as_os_str())?);
        }
    }
    Ok(files)
}

/// Reads `[NAME=]FILE`. If a file has the whole text as its name, the text is that file.
fn named_file(arg: &OsStr) -> Result<Named> {
    let bytes = arg.as_bytes();
    if let Some(at) = bytes.iter().position(|byte| *byte == b'=') {
        let (name, path) = (&bytes[..at], &bytes[at + 1..]);
        // In a path such as ./year=2026/table.parquet the = does not end a name: the text after it
        // names no file.
        let may_be_path = name.contains(&b'/');
        let is_there = || Path::new(OsStr::from_bytes(path)).is_file();
        if !Path::new(arg).exists() && (!may_be_path || is_there()) {
            if name.is_empty() || path.is_empty() {
                let text = format!("{:?} is not NAME=FILE", arg.to_string_lossy());
                return Err(UsageError(text).into());
            }
            let path = PathBuf::from(OsStr::from_bytes(path));
            return Ok((name.to_vec(), Source::File(path)));
        }
    }
    let path = PathBuf::from(arg);
    match path.file_stem() {
        Some(stem) => Ok((stem.as_bytes().to_vec(), Source::File(path))),
        None => bail!("{} has no file name; write NAME=FILE", path.display()),
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
