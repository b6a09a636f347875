//! Lent bodies in the hands of the consumer.

use std::any::Any;
use std::sync::Arc;

use crate::driver::end::EndLink;
use crate::proto::Return;

/// A lent body of one message: gives it back when the last array that points into it is released
/// (rule F1), and keeps the connection alive until then (rule F6).
pub(super) struct LentBody {
    link: Arc<EndLink>,
    /// How; `None` where all its buffers are empty.
    back: Option<Return>,
    memory: Option<Arc<dyn Any + Send + Sync>>,
}

impl LentBody {
    pub(super) fn new(link: &Arc<EndLink>, back: Option<Return>) -> Self {
        link.context.returns.hold();
        Self {
            link: Arc::clone(link),
            back,
            memory: None,
        }
    }

    /// The owner of the body's buffers, which lie in `memory`.
    pub(super) fn into_owner(
        mut self,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Arc<dyn Any + Send + Sync> {
        self.memory = Some(memory);
        Arc::new(self)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        // First: a server may free memory of a GPU that is back, which must not be open here then.
        self.memory = None;
        self.link.context.returns.unhold();
        self.link.free(self.back.take());
    }
}
