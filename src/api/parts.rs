//! Parts of a table, one at a time.

#[cfg(any(feature = "tokio", feature = "async-io"))]
use super::AsyncReader;
use super::{Client, Endpoint, GetOptions, Reader, Uris};
#[cfg(any(feature = "tokio", feature = "async-io"))]
use crate::client::Skipped;
use crate::error::Result;

impl Client {
    /// Asks for one part of a description that the server at `uris` gave: at the part's own servers
    /// one after another, until one answers, or at `uris` if it names none. Servers that only the
    /// description names do not learn the header `authorization`
    /// ([`send_secrets`](GetOptions::send_secrets)), and those of ucx are not asked
    /// ([`trusted_network`](GetOptions::trusted_network)).
    ///
    /// This is for programs that spread the parts over threads or machines of their own; other
    /// programs use [`get_parts`](Self::get_parts).
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// ```no_run
    /// let (client, uri) = (dipc::Client::new()?, "tls://lake.example.org:4000");
    /// for part in client.describe(uri, "lineitem")?.endpoints() {
    ///     let rows = client.get_part(uri, &part, &dipc::GetOptions::new())?;
    ///     println!("{} batches", rows.count());
    /// }
    /// # Ok::<(), dipc::Error>(())
    /// ```
    pub fn get_part(
        &self,
        uris: impl Into<Uris>,
        part: &Endpoint,
        options: &GetOptions,
    ) -> Result<Reader> {
        let (uris, token) = (uris.into(), options.cancel.as_ref());
        let stream = (self.0).get_part(&uris.texts(), &part.0, &options.inner, token)?;
        Reader::new(stream)
    }

    /// [`get_part`](Self::get_part) without a wait.
    ///
    /// # Errors
    ///
    /// As [`get_part`](Self::get_part).
    #[cfg(any(feature = "tokio", feature = "async-io"))]
    pub async fn get_part_async(
        &self,
        uris: impl Into<Uris>,
        part: &Endpoint,
        options: &GetOptions,
    ) -> Result<AsyncReader> {
        let (uris, name) = (uris.into(), part.0.name());
        if part.uris().is_empty() {
            let asked = self.get_async_with(uris, part.ticket(), options).await;
            return asked.map_err(|error| error.context(name));
        }
        let elsewhere = GetOptions {
            inner: options.inner.for_strangers(),
            cancel: options.cancel.clone(),
        };
        let mut skipped = Skipped::default();
        for uri in part.uris() {
            let may_ask = (self.0).ensure_may_lead(&uris.texts(), uri, &options.inner);
            let asked = match may_ask {
                Ok(()) => self.get_async_with(uri, part.ticket(), &elsewhere).await,
                Err(error) => Err(error),
            };
            match asked {
                Err(error) if Skipped::is_for(&error) => skipped.add(&name, uri, &error),
                asked => return asked.map_err(|error| error.context(name)),
            }
        }
        Err(skipped.into_error().context(name))
    }
}
