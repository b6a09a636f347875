use dipc::ArenaFile;
use dipc_sandbox::{HostFile, HostFiles};

/// The files of this process's arenas.
#[derive(Debug)]
pub(crate) struct Arenas;

impl HostFiles for Arenas {
    fn find(&self, bytes: &[u8]) -> Option<HostFile> {
        let file = ArenaFile::of(bytes)?;
        let offset = file.offset();
        Some(HostFile {
            file: Box::new(file),
            offset,
        })
    }
}
