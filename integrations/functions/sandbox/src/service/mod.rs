//! What a server does with modules of its clients: which requests ask for functions ([`Ask`]), what
//! an operator allows ([`Policy`]), and the functions that run ([`Service`], [`Answer`]).
//!
//! It knows the headers of requests and record batches, and no transport.

mod answer;
mod ask;
mod elsewhere;
mod policy;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

pub use answer::{Answer, Ended};
pub use ask::{ARGUMENTS, Ask, Call, HEADER, Hash, NEEDS, SIGNATURE, signed_bytes};
pub use elsewhere::{HOPS, arose_at, hops};
pub use policy::Policy;

use crate::{Canceller, Error, Module, Modules, Running, Sandbox};

/// Why a request was refused, or has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The server has no module of this hash: the client sends it, and asks again.
    #[error("the server has no module {0}: send it first")]
    Missing(Hash),
    /// The operator does not allow it.
    #[error("{0}")]
    Forbidden(String),
    /// The request's headers, or the module's bytes, are not what they should be.
    #[error("{0}")]
    Malformed(String),
    /// The function or its module failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

/// The modules of one server, and who may run them.
#[derive(Debug)]
pub struct Service {
    policy: Policy,
    modules: Modules,
}

impl Service {
    /// Makes the sandbox that the policy asks for.
    ///
    /// # Errors
    ///
    /// [`Error::Host`]: this machine cannot run one. [`Error::Folder`]: a folder of the policy cannot
    /// be made.
    pub fn new(policy: Policy) -> Result<Self, Error> {
        let sandbox = Sandbox::new(policy.sandbox.clone())?;
        let modules = Modules::new(sandbox, policy.modules.clone())?;
        Ok(Self { policy, modules })
    }

    /// What the operator allows.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Decides whether a client may send the module before it sends any of its bytes.
    ///
    /// # Errors
    ///
    /// [`Refusal::Forbidden`].
    pub fn ensure_may_send(
        &self,
        hash: &Hash,
        signature: Option<&[u8]>,
        principal: Option<&str>,
    ) -> Result<(), Refusal> {
        self.policy.ensure_principal(principal)?;
        self.policy.ensure_module(hash, signature)
    }

    /// Whether the module is here already.
    ///
    /// # Errors
    ///
    /// Those of [`Modules::get`].
    pub fn has(&self, hash: &Hash) -> Result<bool, Refusal> {
        Ok(self.modules.get(&hash.0)?.is_some())
    }

    /// Compiles and keeps a module that a client has sent, and may send.
    ///
    /// # Errors
    ///
    /// [`Refusal::Malformed`]: the bytes have another hash. [`Refusal::Failed`]: no sandbox takes
    /// them.
    pub fn keep(&self, hash: &Hash, wasm: &[u8]) -> Result<(), Refusal> {
        let sent = Hash::of(wasm);
        if sent != *hash {
            return Err(Refusal::Malformed(format!(
                "the module's bytes have the hash {sent}, and the request says {hash}"
            )));
        }
        self.modules.insert(wasm)?;
        Ok(())
    }

    /// Decides whether a client may call a function, before its table is looked at.
    ///
    /// # Errors
    ///
    /// [`Refusal::Forbidden`], [`Refusal::Missing`].
    pub fn ensure_may_call(&self, call: &Call, principal: Option<&str>) -> Result<(), Refusal> {
        self.module(call, principal).map(drop)
    }

    /// Begins a function on a table of this schema, or alone. `canceller` ends it.
    ///
    /// # Errors
    ///
    /// Any [`Refusal`].
    pub fn start(
        &self,
        call: &Call,
        principal: Option<&str>,
        input: Option<&SchemaRef>,
        canceller: &Canceller,
    ) -> Result<Running, Refusal> {
        let module = self.module(call, principal)?;
        let limits = &self.policy.limits;
        let (function, arguments) = (&call.function, &call.arguments);
        let mut running = module.start_with(function, arguments, input, limits, canceller)?;
        if !self.policy.has_peers() {
            running.forbid_hops();
        }
        Ok(running)
    }

    /// The bytes of a module that is here, for a server where a call of it goes on.
    ///
    /// # Errors
    ///
    /// [`Refusal::Missing`], and those of [`Modules::get`].
    pub fn wasm(&self, hash: &Hash) -> Result<Arc<[u8]>, Refusal> {
        let module = self.modules.get(&hash.0)?;
        Ok(module.ok_or(Refusal::Missing(*hash))?.wasm())
    }

    fn module(&self, call: &Call, principal: Option<&str>) -> Result<Module, Refusal> {
        self.policy.ensure_principal(principal)?;
        self.policy.ensure_listed(&call.module)?;
        let module = self.modules.get(&call.module.0)?;
        module.ok_or(Refusal::Missing(call.module))
    }
}

#[cfg(test)]
mod tests;
