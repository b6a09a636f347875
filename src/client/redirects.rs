//! Other servers to ask, as named by a server that drains (rule Q8).
//!
//! A server must not lead this process where its program would not go. So a redirect never goes
//! from the network to this machine's own sockets, nor from tls to a connection that others can
//! read. It goes to ucx only if the program trusts its network. The token of a request is not sent
//! on, unless the program insists.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::ClientCore;
use super::uris::KnownUri;
use super::{GetOptions, PutOptions, Stream};
use crate::cancel::Cancel;
use crate::driver::clock;
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, Timestamp, Uri, Verb};
use crate::transport::trust_of;

/// Most servers that one request is led to.
const MOST: usize = 4;

/// The way of one request from server to server.
pub(super) struct Redirects {
    /// The first server. `None`: the request has two URIs, or must stay with its server.
    origin: Option<Uri>,
    trusted_network: bool,
    /// Addresses that were asked, or will be.
    known: Vec<String>,
    next: VecDeque<Arc<[KnownUri]>>,
    asked: usize,
    /// The address that was asked last, if it is not the first.
    last: String,
    /// Why no server so far has taken the request.
    refused: Option<Error>,
}

impl Redirects {
    /// The way of a request for `uris`. `trusted_network`: the program lets servers of ucx write
    /// here.
    pub(super) fn of(uris: &[KnownUri], trusted_network: bool) -> Self {
        let origin = match uris {
            [only] => Some(only.uri.clone()),
            _ => None,
        };
        Self {
            known: origin.iter().map(Uri::bare).collect(),
            origin,
            trusted_network,
            next: VecDeque::new(),
            asked: 0,
            last: String::new(),
            refused: None,
        }
    }

    /// The server to ask after `error`.
    ///
    /// # Errors
    ///
    /// `error`, after the errors that led there, if there is no other server.
    pub(super) fn after(&mut self, client: &ClientCore, error: Error) -> Result<Arc<[KnownUri]>> {
        let is_refusal = error.advice().is_some();
        if !is_refusal && self.asked == 0 {
            return Err(error);
        }
        if !is_refusal && !is_no_answer(error.status()) {
            return Err(error.context(format_args!("at {}, where the server led", self.last)));
        }
        for uri in error.advice().iter().flat_map(|it| &it.elsewhere) {
            self.note(client, uri);
        }
        let refused = match self.refused.take() {
            None => error,
            Some(first) => {
                let text = format!("{}; at {}: {}", first.text(), self.last, error.text());
                Error::new(first.status(), text)
            }
        };
        match self.next.pop_front() {
            Some(uris) => {
                self.asked += 1;
                self.last = uris.first().map(|it| it.uri.bare()).unwrap_or_default();
                for known in &*uris {
                    tracing::info!("{} is asked instead: {refused}", known.uri.bare());
                }
                self.refused = Some(refused);
                Ok(uris)
            }
            None => Err(refused),
        }
    }

    /// [`after`](Self::after) for a table that this client sends: baseline servers take none.
    ///
    /// # Errors
    ///
    /// As [`after`](Self::after).
    pub(super) fn after_put(&mut self, client: &ClientCore, error: Error) -> Result<KnownUri> {
        let mut error = error;
        loop {
            match &*self.after(client, error)? {
                [known] if known.uri.extension => return Ok(known.clone()),
                _ => error = Error::unsupported("a server that takes no tables"),
            }
        }
    }

    /// Keeps a URI that a server has named, if the request may go there.
    fn note(&mut self, client: &ClientCore, uri: &str) {
        let Some(origin) = &self.origin else { return };
        if self.asked + self.next.len() >= MOST {
            return;
        }
        let uris = match client.uris.read(&[uri]) {
            Ok(uris) => uris,
            Err(error) => {
                tracing::info!("a server that drains names no URI: {error}");
                return;
            }
        };
        for known in &*uris {
            let bare = known.uri.bare();
            let (from, to) = (trust_of(&origin.scheme), trust_of(&known.uri.scheme));
            if !from.may_lead_to(to, self.trusted_network) {
                tracing::info!("a server of {} is not followed to {bare}", origin.scheme);
                return;
            }
            if self.known.contains(&bare) {
                return;
            }
            self.known.push(bare);
        }
        self.next.push_back(uris);
    }
}

impl ClientCore {
    /// [`open`](Self::open), but gives the refusal of a server that drains to the caller.
    pub(super) fn open_here(
        self: &Arc<Self>,
        uris: &Arc<[KnownUri]>,
        asked_for: (Verb, &[u8]),
        options: &GetOptions,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        self.streams.fetch_add(1, Ordering::Relaxed);
        let due = options.deadline.map(clock::after);
        let asked = self.ask_at(uris, asked_for, options, (true, due), cancel);
        self.opened(asked_for, asked)
    }

    /// Goes on after a refusal of [`open_here`](Self::open_here): asks the servers that it names.
    pub(super) fn open_on(
        self: &Arc<Self>,
        uris: &Arc<[KnownUri]>,
        asked_for: (Verb, &[u8]),
        options: &GetOptions,
        refusal: Error,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        let due = options.deadline.map(clock::after);
        let asked = self.go_on(uris, asked_for, options, (true, due), refusal, cancel);
        self.opened(asked_for, asked)
    }

    /// Asks the servers that `error`, the answer of the first server, names.
    pub(super) fn go_on(
        self: &Arc<Self>,
        uris: &Arc<[KnownUri]>,
        asked_for: (Verb, &[u8]),
        options: &GetOptions,
        limits: (bool, Option<Timestamp>),
        mut error: Error,
        cancel: Option<&Cancel>,
    ) -> Result<Stream> {
        let mut redirects = Redirects::of(uris, options.trusted_network);
        let options = options.for_strangers();
        loop {
            let uris = redirects.after(self, error)?;
            match self.ask_at(&uris, asked_for, &options, limits, cancel) {
                Ok(stream) => return Ok(stream),
                Err(again) => error = again,
            }
        }
    }
}

/// Whether another server may be asked: nobody has answered, or the server has no room.
fn is_no_answer(status: Status) -> bool {
    matches!(
        status,
        Status::Unreachable
            | Status::Timeout
            | Status::Disconnected
            | Status::Unsupported
            | Status::Permission
            | Status::Busy
            | Status::Stopped
    )
}

fn without_secrets(headers: &Headers) -> Headers {
    headers.without("authorization")
}

impl GetOptions {
    /// Options for servers that the caller has not named: they do not learn its secrets, unless the
    /// caller insists.
    pub(crate) fn for_strangers(&self) -> Self {
        let mut options = self.clone();
        if !options.send_secrets {
            options.headers = without_secrets(&options.headers);
        }
        options
    }
}

impl PutOptions {
    /// As [`GetOptions::for_strangers`].
    pub(super) fn for_strangers(&self) -> Self {
        let mut options = self.clone();
        if !options.send_secrets {
            options.headers = without_secrets(&options.headers);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientOptions;
    use crate::error::Advice;

    fn refusal(uris: &[&str]) -> Error {
        let elsewhere = uris.iter().map(|uri| (*uri).to_owned()).collect();
        Error::new(Status::Busy, "drains").with_advice(Some(Advice {
            elsewhere,
            retry_after: None,
        }))
    }

    /// The addresses that a request asks if all servers refuse it with `advice`.
    fn way(from: &str, advice: &[&str], trusted_network: bool) -> Vec<String> {
        let client = ClientCore::start(ClientOptions::default()).unwrap();
        let uris = client.uris.read(&[from]).unwrap();
        let mut redirects = Redirects::of(&uris, trusted_network);
        let mut way = Vec::new();
        while let Ok(uris) = redirects.after(&client, refusal(advice)) {
            way.push(uris[0].uri.bare());
        }
        way
    }

    /// Rule Q8: a request goes to four other servers at most, and to none twice.
    #[test]
    fn a_request_is_led_on_four_times() {
        let named: Vec<_> = (0..9).map(|n| format!("tcp://10.0.0.{n}:1")).collect();
        let named: Vec<_> = named.iter().map(String::as_str).collect();
        assert_eq!(way("tcp://a:1", &named, false), &named[..4]);
        let same = ["tcp://a:1?want_data=9", "tcp://b:1", "tcp://b:1", "what?"];
        assert_eq!(way("tcp://a:1", &same, false), ["tcp://b:1"]);
    }

    /// Promise of operation.md: a server leads no client where its program would not go.
    #[test]
    fn servers_lead_nowhere_worse() {
        let all = ["shm:/s", "tcp://t:1", "tls://s:1", "ucx://u:1"];
        for (from, trusted, expected) in [
            ("shm:/a", false, &all[..3]),
            ("tcp://a:1", false, &all[1..3]),
            ("tcp://a:1", true, &all[1..]),
            ("tls://a:1", true, &all[2..3]),
            ("ucx://a:1", false, &all[1..]),
        ] {
            assert_eq!(way(from, &all, trusted), expected, "{from}");
        }
    }

    /// The error of a way that ends nowhere is the first server's, and says what came after.
    #[test]
    fn the_error_tells_the_way() {
        let client = ClientCore::start(ClientOptions::default()).unwrap();
        let uris = client.uris.read(&["tcp://a:1"]).unwrap();
        let mut redirects = Redirects::of(&uris, false);
        redirects
            .after(&client, refusal(&["tcp://b:1", "tcp://c:1"]))
            .unwrap();
        let nobody = Error::new(Status::Unreachable, "nobody");
        redirects.after(&client, nobody.clone()).unwrap();
        let error = redirects.after(&client, nobody).unwrap_err();
        assert_eq!(error.status(), Status::Busy);
        assert_eq!(
            error.text(),
            "drains; at tcp://b:1: nobody; at tcp://c:1: nobody"
        );

        // An answer other than "busy" ends the way, also from a later server.
        let mut redirects = Redirects::of(&uris, false);
        redirects
            .after(&client, refusal(&["tcp://b:1", "tcp://c:1"]))
            .unwrap();
        let unknown = Error::new(Status::NotFound, "no such ticket");
        let error = redirects.after(&client, unknown).unwrap_err();
        assert_eq!(error.status(), Status::NotFound);
        assert!(error.text().starts_with("at tcp://b:1"), "{error}");
        assert!(error.text().ends_with("no such ticket"), "{error}");
    }

    /// Rule Q7: a server that the caller has not named does not learn its token.
    #[test]
    fn tokens_stay() {
        let mut options = GetOptions::default();
        options.headers.add("authorization", "Bearer x").unwrap();
        options.headers.add("k", "v").unwrap();
        let strangers = options.for_strangers();
        assert_eq!(strangers.headers.get("authorization"), None);
        assert_eq!(strangers.headers.get("k"), Some(&b"v"[..]));
        options.send_secrets = true;
        let insisting = options.for_strangers();
        assert!(insisting.headers.get("authorization").is_some());
    }
}
