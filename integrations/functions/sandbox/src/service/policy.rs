use std::collections::BTreeSet;

use ed25519_dalek::{Signature, VerifyingKey};

use super::Refusal;
use super::ask::{Hash, signed_bytes};
use super::elsewhere::bare;
use crate::{Error, Limits, ModulesOptions, Options};

/// What the operator of a server allows its clients to run. Nothing, until it names modules, keys
/// or all modules.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    any_module: bool,
    hashes: BTreeSet<Hash>,
    keys: Vec<VerifyingKey>,
    /// `None`: every client that the server's authorizer lets through.
    principals: Option<BTreeSet<String>>,
    /// Servers where calls may go on.
    peers: BTreeSet<String>,
    /// What one call may use.
    pub limits: Limits,
    /// The greatest module, and where compiled code is kept.
    pub sandbox: Options,
    /// How many modules are kept, and where.
    pub modules: ModulesOptions,
}

impl Policy {
    /// Allows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows the module with this hash.
    #[must_use]
    pub fn allow_module(mut self, hash: Hash) -> Self {
        self.hashes.insert(hash);
        self
    }

    /// Allows modules that the owner of this Ed25519 key has signed. Such a module may run for
    /// every client that the policy lets through, once one of them has sent it.
    ///
    /// # Errors
    ///
    /// [`Error::Module`]: no such key.
    pub fn allow_key(mut self, key: &[u8; 32]) -> Result<Self, Error> {
        let key = VerifyingKey::from_bytes(key)
            .map_err(|_| Error::Module("the 32 bytes are no public key of Ed25519".into()))?;
        self.keys.push(key);
        Ok(self)
    }

    /// Allows every module: the sandbox alone stands between its code and this machine.
    #[must_use]
    pub fn allow_any_module(mut self) -> Self {
        self.any_module = true;
        self
    }

    /// Lets clients with this principal alone ask for functions, and those of further calls. The
    /// server's authorizer gives principals.
    #[must_use]
    pub fn allow_principal(mut self, principal: impl Into<String>) -> Self {
        (self.principals.get_or_insert_default()).insert(principal.into());
        self
    }

    /// Lets functions that ask for it go on at this server: a URI, whose parameters do not matter, or,
    /// with `*` at its end, all that begin so. Without peers no call leaves its server.
    ///
    /// A function chooses the URI, and this server asks in its own name: name servers alone that may
    /// be reached by everybody who may run a function here. A beginning should contain the port's
    /// colon, as `tcp://node-1:*`, since other hosts' names may begin alike.
    #[must_use]
    pub fn allow_peer(mut self, uri: impl Into<String>) -> Self {
        self.peers.insert(uri.into());
        self
    }

    /// Whether calls may leave the server.
    pub fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Decides whether a call may go on at a server.
    ///
    /// # Errors
    ///
    /// [`Refusal::Forbidden`].
    pub fn ensure_peer(&self, uri: &str) -> Result<(), Refusal> {
        let fits = |peer: &String| match peer.strip_suffix('*') {
            Some(beginning) => uri.starts_with(beginning),
            None => bare(uri) == bare(peer),
        };
        match self.peers.iter().any(fits) {
            true => Ok(()),
            false => Err(Refusal::Forbidden(format!(
                "the server does not let functions go on at {uri:?}: its policy does not list it \
                 (allow_peer)"
            ))),
        }
    }

    pub(super) fn ensure_principal(&self, principal: Option<&str>) -> Result<(), Refusal> {
        let Some(allowed) = &self.principals else {
            return Ok(());
        };
        match principal {
            Some(principal) if allowed.contains(principal) => Ok(()),
            Some(principal) => Err(Refusal::Forbidden(format!(
                "the server does not let {principal:?} run functions"
            ))),
            None => Err(Refusal::Forbidden(
                "the server lets named clients alone run functions, and this one has no name"
                    .into(),
            )),
        }
    }

    /// For a module that comes.
    pub(super) fn ensure_module(
        &self,
        hash: &Hash,
        signature: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        if self.any_module || self.hashes.contains(hash) {
            return Ok(());
        }
        if self.keys.is_empty() {
            return Err(not_listed(hash));
        }
        let Some(signature) = signature else {
            return Err(Refusal::Forbidden(format!(
                "the server does not list the module {hash}, and takes other ones with a signature \
                 alone (the header `function-signature`)"
            )));
        };
        let signed = Signature::from_slice(signature).is_ok_and(|signature| {
            let bytes = signed_bytes(hash);
            (self.keys.iter()).any(|key| key.verify_strict(&bytes, &signature).is_ok())
        });
        match signed {
            true => Ok(()),
            false => Err(Refusal::Forbidden(format!(
                "the signature of the module {hash} is of none of the server's keys"
            ))),
        }
    }

    /// For a module that is here: a signature was seen when it came.
    pub(super) fn ensure_listed(&self, hash: &Hash) -> Result<(), Refusal> {
        match self.any_module || !self.keys.is_empty() || self.hashes.contains(hash) {
            true => Ok(()),
            false => Err(not_listed(hash)),
        }
    }
}

fn not_listed(hash: &Hash) -> Refusal {
    Refusal::Forbidden(format!(
        "the server does not allow the module {hash}: its policy lists other modules or none"
    ))
}
