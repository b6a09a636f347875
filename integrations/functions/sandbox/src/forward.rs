use crate::wasm32::read::Memory;
use crate::{Error, Result};

const URI_BYTES: u32 = 4 << 10;
const DESCRIPTOR_BYTES: u32 = 64 << 10;
/// With the other headers of a request, arguments have 64 KiB.
const STATE_BYTES: u32 = 48 << 10;

/// Where a call goes on, as its function asks. The host decides whether it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The server. Any text of the module's: at most 4 KiB.
    pub uri: String,
    /// The table there, at most 64 KiB. Empty: the function runs there without a table.
    pub descriptor: Vec<u8>,
    /// The arguments there, at most 48 KiB.
    pub state: Vec<u8>,
}

/// The parameters of the import: pointers and lengths.
pub(crate) struct Asked {
    pub(crate) uri: (u32, u32),
    pub(crate) descriptor: (u32, u32),
    pub(crate) state: (u32, u32),
}

impl Asked {
    pub(crate) fn read(&self, memory: Memory<'_>) -> Result<Forward> {
        let part = |name: &str, (pointer, length): (u32, u32), most: u32| {
            if length > most {
                let text = format!("a forward has {length} bytes of {name}, more than {most}");
                return Err(Error::Data(text));
            }
            Ok(memory.bytes(pointer, u64::from(length))?.to_vec())
        };
        let uri = String::from_utf8(part("URI", self.uri, URI_BYTES)?)
            .map_err(|_| Error::Data("the URI of a forward is not UTF-8".into()))?;
        Ok(Forward {
            uri,
            descriptor: part("descriptor", self.descriptor, DESCRIPTOR_BYTES)?,
            state: part("state", self.state, STATE_BYTES)?,
        })
    }
}
