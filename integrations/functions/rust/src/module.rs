use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use dipc::{Batches, Client, Error, Headers, PutOptions, Result, Status, Uris};
use dipc_sandbox::service::{Ask, HEADER, Hash, NEEDS, SIGNATURE};

/// Bytes of a module in one row.
const PART: usize = 1 << 20;

/// A module of WebAssembly, as a client has it. A clone shares the bytes.
#[derive(Clone)]
pub struct Module {
    wasm: Arc<[u8]>,
    hash: Hash,
    signature: Option<Arc<[u8]>>,
}

impl Module {
    /// The module with these bytes. The server checks them.
    pub fn new(wasm: impl Into<Arc<[u8]>>) -> Self {
        let wasm = wasm.into();
        Self {
            hash: Hash::of(&wasm),
            wasm,
            signature: None,
        }
    }

    /// The module of a server, which has checked the hash.
    pub(crate) fn known(hash: Hash, wasm: Arc<[u8]>) -> Self {
        Self {
            hash,
            wasm,
            signature: None,
        }
    }

    /// The module of a file.
    ///
    /// # Errors
    ///
    /// `NotFound` and the like: what the system says.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| {
            let status = match error.kind() {
                std::io::ErrorKind::NotFound => Status::NotFound,
                std::io::ErrorKind::PermissionDenied => Status::Permission,
                _ => Status::Io,
            };
            Error::new(status, format!("cannot read {}: {error}", path.display()))
        })?;
        Ok(Self::new(bytes))
    }

    /// Adds the signature that goes with the module: 64 bytes of Ed25519 over
    /// [`signed_bytes`](crate::signed_bytes).
    #[must_use]
    pub fn signed(mut self, signature: &[u8]) -> Self {
        self.signature = Some(signature.into());
        self
    }

    /// The SHA-256 of the bytes, which names the module.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Sends the module to a server, which compiles and keeps it. [`Message`](crate::Message) does
    /// so by itself when a server lacks the module.
    ///
    /// # Errors
    ///
    /// `Permission`: the server does not allow the module, or this client. `InvalidData`: no
    /// sandbox takes it. `Unsupported`: the server runs no functions. Those of
    /// [`Client::put`](dipc::Client::put).
    pub fn send(
        &self,
        client: &Client,
        uris: impl Into<Uris>,
        options: &PutOptions,
        headers: &Headers,
    ) -> Result<()> {
        let mut headers = headers.clone();
        headers.add(NEEDS, HEADER)?;
        headers.add(HEADER, Ask::Module(self.hash).header())?;
        if let Some(signature) = &self.signature {
            headers.add(SIGNATURE, signature.to_vec())?;
        }
        let options = options.clone().headers(headers);
        match client.put_with(uris, b"", self.table()?, &options) {
            // Another client was faster.
            Err(error) if error.status() == Status::AlreadyExists => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// The bytes as a table: a row for each part, in order.
    fn table(&self) -> Result<Batches> {
        let parts: ArrayRef = Arc::new(BinaryArray::from_iter_values(self.wasm.chunks(PART)));
        let batch = RecordBatch::try_from_iter([("wasm", parts)])
            .map_err(|error| Error::new(Status::InvalidData, error.to_string()))?;
        Ok(Batches::of(batch.schema(), [batch]))
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("hash", &self.hash)
            .field("bytes", &self.wasm.len())
            .finish_non_exhaustive()
    }
}
