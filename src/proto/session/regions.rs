//! Regions of this end's memory that the peer knows (rule E3). They belong to the connection.

use std::collections::BTreeMap;

use super::role::SessionRole;
use super::{Session, SessionEvent};
use crate::error::{Error, Result};
use crate::proto::{Control, ProtocolError, SenderState, Transmit};

/// The last message to the peer about a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Announced,
    Gone,
}

/// The regions that the peer knows, by number.
#[derive(Debug, Default)]
pub(super) struct Regions(BTreeMap<u16, Told>);

impl Regions {
    fn announce(&mut self, id: u16) -> Result<()> {
        if id == 0 || self.0.contains_key(&id) {
            return Err(Error::invalid_argument(format!(
                "region number {id} is 0 or in use"
            )));
        }
        self.0.insert(id, Told::Announced);
        Ok(())
    }

    fn retire(&mut self, id: u16) -> Result<()> {
        match self.0.get_mut(&id) {
            Some(told @ Told::Announced) => *told = Told::Gone,
            _ => {
                return Err(Error::invalid_argument(format!(
                    "no region {id} is announced"
                )));
            }
        }
        Ok(())
    }

    fn forget(&mut self, id: u16) -> Result<(), ProtocolError> {
        // Rule E3: the message acknowledges REGION_GONE and nothing else.
        if self.0.get(&id) != Some(&Told::Gone) {
            return Err(broken!(
                "E3",
                "acknowledgement that region {id} is gone, which it is not"
            ));
        }
        self.0.remove(&id);
        Ok(())
    }
}

impl<P, K, B> Session<P, K, B> {
    /// Tells the peer about a region, before a list names an address in the region (rule E3).
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the peer does not speak the extension, the connection is over, or the
    /// number is 0 or in use.
    pub fn announce_region(&mut self, id: u16, handle: &[u8]) -> Result<()> {
        self.ensure_heard("announce_region")?;
        self.regions.announce(id)?;
        let handle = handle.to_vec();
        self.say(&Control::Region { id, handle }, Some(id));
        Ok(())
    }

    /// Tells the peer that no list will name an address in the region again. The number of the
    /// region is free after [`SessionEvent::RegionForgotten`].
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no such region is announced, or the connection is over.
    pub fn retire_region(&mut self, id: u16) -> Result<()> {
        self.ensure_heard("retire_region")?;
        self.regions.retire(id)?;
        self.say(&Control::RegionGone { id }, None);
        Ok(())
    }

    /// Tells the peer that the server takes no further request on this connection. The peer closes
    /// the connection once the running stream has arrived completely.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the peer does not speak the extension, or the connection is over.
    pub fn go_away(&mut self) -> Result<()> {
        self.ensure_heard("go_away")?;
        if let SessionRole::Server(server) = &mut self.role {
            server.is_going = true;
        }
        self.say(&Control::GoAway, None);
        Ok(())
    }

    /// The peer has forgotten a region.
    pub(super) fn region_forgotten(&mut self, id: u16) -> Result<()> {
        if self.streams.first.sender.state() == SenderState::Closed {
            return Ok(());
        }
        let forgotten = self.regions.forget(id);
        forgotten.map_err(|error| self.streams.first.sender.close(error))?;
        (self.events).push_back(SessionEvent::RegionForgotten { id });
        Ok(())
    }

    /// Whether the peer reads messages about this side's memory.
    pub(super) fn is_heard(&self) -> bool {
        self.is_many() || self.streams.first.sender.is_extension()
    }

    /// Fails if the peer does not read messages about the connection.
    fn ensure_heard(&self, call: &str) -> Result<()> {
        let state = self.streams.first.sender.state();
        if state == SenderState::Closed || !self.is_heard() {
            return Err(Error::invalid_argument(format!(
                "{call} is not possible while the sender is {state:?}"
            )));
        }
        Ok(())
    }

    pub(super) fn say(&mut self, message: &Control, region: Option<u16>) {
        let bytes = message.encode();
        self.controls.push_back(Transmit::Control { bytes, region });
    }
}
