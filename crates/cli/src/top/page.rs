//! The page of figures that a server gives: fetched, and read.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::metrics::PATH;
use crate::parse::UsageError;

/// Most bytes of a page. A server has at most 1,000 labels.
const MOST_BYTES: usize = 64 << 20;

/// Where a page is: `http://HOST:PORT/PATH`, or `HOST:PORT`.
pub fn address(text: &str) -> Result<Uri> {
    let whole = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let usage = || {
        UsageError(format!(
            "{text} is no address of figures: give that which `dipc serve --metrics` prints, as \
             http://127.0.0.1:9464/metrics"
        ))
    };
    let uri: Uri = whole.parse().map_err(|_| usage())?;
    // For example shm:@name, which would be read as a user and a host.
    let has_user = |authority: &hyper::http::uri::Authority| authority.as_str().contains('@');
    if uri.scheme_str() != Some("http") || uri.authority().is_none_or(has_user) {
        return Err(usage().into());
    }
    if uri.path() != "/" {
        return Ok(uri);
    }
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("http://{authority}{PATH}")
        .parse()
        .map_err(|_| usage().into())
}

/// Fetches a page, within `timeout`.
pub async fn fetch(uri: &Uri, timeout: Duration) -> Result<String> {
    let fetched = tokio::time::timeout(timeout, fetch_slowly(uri)).await;
    let late = || format!("{uri} has not answered within {timeout:?}");
    fetched.with_context(late)?
}

async fn fetch_slowly(uri: &Uri) -> Result<String> {
    let doing = || format!("cannot get {uri}");
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let answer = client.get(uri.clone()).await.with_context(doing)?;
    let status = answer.status();
    if status != StatusCode::OK {
        bail!("{}: {status}", doing());
    }
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    let body = body
        .map_err(anyhow::Error::from_boxed)
        .with_context(doing)?;
    let text = String::from_utf8(body.to_bytes().into());
    text.ok()
        .with_context(|| format!("{}: it is no text", doing()))
}

/// One line of a page: a name, labels and a value.
#[derive(Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// The lines of a page, without those that cannot be read.
pub fn samples(page: &str) -> impl Iterator<Item = Sample> + '_ {
    let lines = page.split('\n');
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(sample)
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (BTreeMap::new(), rest),
    };
    // A time may follow.
    let value = rest.split_ascii_whitespace().next()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}

/// The labels after the opening brace, and the text after the closing brace.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = quoted.chars();
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => match chars.next()? {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                other => value.push(other),
            }
        }
        labels.insert(name.to_owned(), value);
        rest = chars.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of Prometheus' format are read, odd ones left out.
    #[test]
    fn lines_are_samples() {
        let page = "# HELP a b\n# TYPE a counter\na 1\nb{x=\"1\",y=\"\\\"\\\\\\n}\"} +Inf 7\n\
                    c{x=\"1} 2\nd{x} 1\ne\nf x\n";
        let found: Vec<_> = samples(page).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].name.as_str(), found[0].value), ("a", 1.0));
        assert_eq!(found[1].labels["y"], "\"\\\n}");
        assert!(found[1].value.is_infinite());
    }

    /// An address is whole, or a host and a port.
    #[test]
    fn addresses_are_completed() {
        let whole = |text: &str| address(text).map(|uri| uri.to_string()).ok();
        let usual = Some("http://127.0.0.1:9464/metrics".to_owned());
        assert_eq!(whole("127.0.0.1:9464"), usual);
        assert_eq!(whole("http://127.0.0.1:9464/"), usual);
        assert_eq!(whole("http://h/of/it"), Some("http://h/of/it".to_owned()));
        for bad in ["", "https://h:1/", "shm:@name", "http://"] {
            assert_eq!(whole(bad), None, "{bad}");
        }
    }
}
