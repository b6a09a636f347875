//! How large messages get to the peer, and what that means for those who make them.

use super::{Link, UcxConnection};
use crate::transport::ucx::bundle;
use crate::transport::ucx::gather::TOGETHER_BYTES;
use crate::transport::ucx::info::{self, Way};

impl UcxConnection {
    /// How large messages get to the peer. `None`: there was none yet, and UCX may still be connecting the two.
    pub(super) fn way(&self) -> Option<Way> {
        let asks = self.sent_large && self.over.is_none() && self.generation.is_same_process();
        let Link { worker, endpoint } = self.link.as_ref().filter(|_| asks)?;
        Some(self.way.get().unwrap_or_else(|| {
            let way = match worker.context().scheme_is_set() {
                true => Way::Written,
                false => info::way(self.api, *endpoint),
            };
            self.way.set(Some(way));
            way
        }))
    }

    /// Whether large messages go over tcp alone.
    pub(super) fn goes_over_tcp(&self) -> bool {
        let context = self.link.as_ref().map(|link| link.worker.context());
        context.is_some_and(|it| it.goes_over_tcp()) || self.way() == Some(Way::OverTcp)
    }

    /// Whether the peer is sent large messages in bundles: over tcp, where the user has not said how they go.
    fn bundles_large(&self) -> bool {
        let context = self.link.as_ref().map(|link| link.worker.context());
        let is_told = context.is_some_and(|it| it.scheme_is_set() || it.threshold_is_set());
        self.bundle.is_some() && !is_told && self.goes_over_tcp()
    }

    /// Up to how many bytes a message travels in a bundle.
    pub(super) fn most_in_a_bundle(&self) -> usize {
        match self.bundles_large() {
            true => bundle::MOST_MESSAGE_BYTES_OVER_TCP,
            false => bundle::MOST_MESSAGE_BYTES,
        }
    }

    /// [`Connection::whole_from`](crate::transport::Connection::whole_from).
    pub(super) fn least_to_put_together(&self) -> u64 {
        // UCX packs several runs into pieces that it copies, each with a system call over tcp; one run goes
        // from where it lies. In a bundle they lie together.
        if !self.goes_over_tcp() {
            return u64::MAX;
        }
        let most = match self.bundles_large() {
            true => bundle::MOST_MESSAGE_BYTES_OVER_TCP,
            false => TOGETHER_BYTES,
        };
        most as u64 + 1
    }
}
