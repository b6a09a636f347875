//! What can be cancelled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use adbc_core::CancelHandle;
use adbc_core::error::Result;
use dipc::Cancel;

use crate::error::{OrAdbc as _, invalid_state};

/// The requests and result sets of a statement or a connection that have not ended. Clones are the
/// same set.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Mutex<Vec<Weak<Cancel>>>>);

impl Running {
    /// The token of a request that begins. The request, and then its result set, owns it.
    pub(crate) fn begin(&self) -> Result<Arc<Cancel>> {
        let token = Arc::new(Cancel::new().or_adbc()?);
        let mut tokens = self.tokens();
        tokens.retain(|token| token.strong_count() > 0);
        tokens.push(Arc::downgrade(&token));
        Ok(token)
    }

    fn tokens(&self) -> MutexGuard<'_, Vec<Weak<Cancel>>> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CancelHandle for Running {
    fn try_cancel(&self) -> Result<()> {
        let tokens: Vec<_> = self.tokens().iter().filter_map(Weak::upgrade).collect();
        if tokens.is_empty() {
            return Err(invalid_state("nothing runs that could be cancelled"));
        }
        tokens.iter().for_each(|token| token.cancel());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_cannot_be_cancelled() {
        let running = Running::default();
        assert!(running.try_cancel().is_err());
        let [first, second] = [(); 2].map(|()| running.begin().unwrap());
        drop(first);
        running.clone().try_cancel().unwrap();
        assert!(second.is_cancelled());
        assert!(!running.begin().unwrap().is_cancelled());
        drop(second);
        assert!(running.try_cancel().is_err());
    }
}
