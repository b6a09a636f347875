//! The options of requests. A database hands them to its connections, and these to their
//! statements.

use std::collections::BTreeMap;

use adbc_core::error::Result;
use adbc_core::options::OptionValue;
use dipc::{BodyPolicy, Cancel, Compression, GetOptions, Level, PutOptions};

use crate::error::{OrAdbc as _, invalid, not_found, not_implemented};
use crate::selection::OF_STATEMENTS;
use crate::values::{FOREVER, bytes_of, flag, limit, number, one_of, text, time};

/// Options with this prefix are settings of a transport: the rest of the name is the setting's.
pub(crate) const SETTING: &str = "dipc.setting.";

/// The options that only databases have, without a prefix.
pub(crate) const OF_DATABASES: [&str; 7] = [
    "dipc.tls.ca",
    "dipc.tls.certificate",
    "dipc.tls.key",
    "dipc.tls.server_name",
    "dipc.any_user",
    "dipc.idle_timeout",
    "dipc.max_idle",
];

/// Options with this prefix are headers: the rest of the name is the key.
const HEADER: &str = "dipc.header.";

const TOKEN: &str = "dipc.token";
/// The header that the token goes with.
const TOKEN_HEADER: &str = "dipc.header.authorization";
const WINDOW_BATCHES: &str = "dipc.window.batches";
const WINDOW_BYTES: &str = "dipc.window.bytes";
const PARTS: &str = "dipc.parts";
const INGEST_MODES: &str = "dipc.ingest.modes";

/// The options of requests, without a prefix.
const NAMES: [&str; 17] = [
    TOKEN,
    "dipc.send_secrets",
    "dipc.connect_timeout",
    "dipc.stall_timeout",
    "dipc.deadline",
    WINDOW_BATCHES,
    WINDOW_BYTES,
    "dipc.message_limit",
    "dipc.connections",
    "dipc.checksums",
    "dipc.validation",
    "dipc.spin",
    "dipc.trusted_network",
    "dipc.body",
    "dipc.compression",
    PARTS,
    INGEST_MODES,
];

/// The default for each part of the window, if only the other part is set.
const WINDOW: (u64, u64) = (16, 256 << 20);

/// The least limit of a message: a schema is a message, too.
const LEAST_MESSAGE: u64 = 64 << 10;
/// The most connections of one stream.
const CONNECTIONS: u16 = 64;

/// The values of the options that are set, as bytes.
#[derive(Clone, Default)]
pub(crate) struct Settings(BTreeMap<String, Vec<u8>>);

impl Settings {
    /// Sets an option.
    ///
    /// # Errors
    ///
    /// `NotImplemented`: there is no such option. `InvalidArguments`: it cannot have this value.
    pub(crate) fn set(&mut self, name: &str, value: OptionValue) -> Result<()> {
        if !NAMES.contains(&name) && !name.starts_with(HEADER) {
            return Err(unknown(name));
        }
        let mut changed = self.clone();
        changed.0.insert(name.to_owned(), bytes_of(value)?);
        changed.ensure_one_token()?;
        changed.get_options()?;
        changed.put_options()?;
        changed.in_parts()?;
        changed.ingest_modes()?;
        *self = changed;
        Ok(())
    }

    /// What the option was set to.
    ///
    /// # Errors
    ///
    /// `NotFound`: it is not set.
    pub(crate) fn get(&self, name: &str) -> Result<&[u8]> {
        let value = self.0.get(name).map(Vec::as_slice);
        value.ok_or_else(|| not_found(format!("the option {name:?} is not set")))
    }

    /// The options of a get, a describe or a list.
    pub(crate) fn get_options(&self) -> Result<GetOptions> {
        let mut options = GetOptions::new();
        for (name, value) in &self.0 {
            options = get_option(common_get(options, name, value)?, name, value)?;
        }
        if self.0.contains_key(WINDOW_BATCHES) || self.0.contains_key(WINDOW_BYTES) {
            let batches = self.credit(WINDOW_BATCHES)?.unwrap_or(WINDOW.0);
            let bytes = self.credit(WINDOW_BYTES)?.unwrap_or(WINDOW.1);
            options = options.window(batches, bytes);
        }
        Ok(options)
    }

    /// [`get_options`](Self::get_options) of a request that `token` ends.
    pub(crate) fn get_until(&self, token: &Cancel) -> Result<GetOptions> {
        Ok(self.get_options()?.cancel(token))
    }

    /// The options of a put.
    pub(crate) fn put_options(&self) -> Result<PutOptions> {
        let mut options = PutOptions::new();
        for (name, value) in &self.0 {
            options = put_option(common_put(options, name, value)?, name, value)?;
        }
        Ok(options)
    }

    /// Whether a result set is read from all places of its description at once.
    pub(crate) fn in_parts(&self) -> Result<bool> {
        self.0.get(PARTS).map_or(Ok(false), |it| flag(PARTS, it))
    }

    /// The modes of ingestion that the server's host follows.
    pub(crate) fn ingest_modes(&self) -> Result<Vec<&str>> {
        const KNOWN: [&str; 4] = ["create", "append", "replace", "create_append"];
        let Some(value) = self.0.get(INGEST_MODES) else {
            return Ok(vec!["create"]);
        };
        let modes = text(INGEST_MODES, value)?.split(',').map(str::trim);
        let modes: Vec<_> = modes.filter(|mode| !mode.is_empty()).collect();
        match modes.iter().find(|mode| !KNOWN.contains(mode)) {
            None => Ok(modes),
            Some(mode) => {
                let known = KNOWN.join(", ");
                Err(invalid(format!(
                    "{INGEST_MODES} has {mode:?}; the modes are {known}"
                )))
            }
        }
    }

    /// A window of 0 would let nothing through.
    fn credit(&self, name: &str) -> Result<Option<u64>> {
        let value = self.0.get(name);
        value
            .map(|value| number(name, value, 1..=u64::MAX))
            .transpose()
    }

    /// A server's host may take either of two headers with the same key.
    fn ensure_one_token(&self) -> Result<()> {
        match self.0.contains_key(TOKEN) && self.0.contains_key(TOKEN_HEADER) {
            false => Ok(()),
            true => Err(invalid(format!(
                "{TOKEN} is sent as the header that {TOKEN_HEADER} sets, too: set one of them"
            ))),
        }
    }
}

macro_rules! common {
    ($function:ident, $options:ident) => {
        /// Applies what gets and puts have in common.
        fn $function(options: $options, name: &str, value: &[u8]) -> Result<$options> {
            Ok(match name {
                TOKEN => {
                    let bearer = [b"Bearer ", value].concat();
                    options.header("authorization", bearer).or_adbc()?
                }
                "dipc.send_secrets" => options.send_secrets(flag(name, value)?),
                "dipc.connect_timeout" => {
                    options.connect_timeout(limit(name, value)?.unwrap_or(FOREVER))
                }
                "dipc.stall_timeout" => match limit(name, value)? {
                    Some(limit) => options.stall_timeout(limit),
                    None => options,
                },
                "dipc.deadline" => match limit(name, value)? {
                    Some(limit) => options.deadline(limit),
                    None => options,
                },
                "dipc.connections" => options.connections(number(name, value, 1..=CONNECTIONS)?),
                "dipc.checksums" => options.checksums(flag(name, value)?),
                _ => match name.strip_prefix(HEADER) {
                    Some(key) => options.header(key, value).or_adbc()?,
                    None => options,
                },
            })
        }
    };
}

common!(common_get, GetOptions);
common!(common_put, PutOptions);

fn get_option(options: GetOptions, name: &str, value: &[u8]) -> Result<GetOptions> {
    Ok(match name {
        "dipc.message_limit" => {
            options.message_limit(number(name, value, LEAST_MESSAGE..=u64::MAX)?)
        }
        "dipc.spin" => options.spin(time(name, value)?),
        "dipc.trusted_network" => options.trusted_network(flag(name, value)?),
        "dipc.validation" => {
            let levels = [("structure", Level::Structure), ("full", Level::Full)];
            options.validation(one_of(name, value, levels)?)
        }
        _ => options,
    })
}

fn put_option(options: PutOptions, name: &str, value: &[u8]) -> Result<PutOptions> {
    Ok(match name {
        "dipc.body" => {
            let policies = [
                ("auto", BodyPolicy::Auto),
                ("packed", BodyPolicy::Packed),
                ("lent", BodyPolicy::Lent),
            ];
            options.body(one_of(name, value, policies)?)
        }
        "dipc.compression" => {
            let kinds = [("lz4", Compression::Lz4Frame), ("zstd", Compression::Zstd)];
            options.compression(one_of(name, value, kinds)?)
        }
        _ => options,
    })
}

/// True if the client of a database is made with the option.
pub(crate) fn is_of_databases(name: &str) -> bool {
    OF_DATABASES.contains(&name) || name.starts_with(SETTING)
}

/// The error of an option that requests do not have.
fn unknown(name: &str) -> adbc_core::error::Error {
    not_implemented(match name {
        name if is_of_databases(name) => {
            format!("{name} is an option of databases: set it before the database is initialised")
        }
        name if OF_STATEMENTS.contains(&name) => {
            format!("{name} is an option of statements: set it on each that needs it")
        }
        name => format!(
            "there is no option {name:?}. Databases have {}, {SETTING}NAME; databases, \
             connections and statements have {}, {HEADER}KEY; statements have {}",
            OF_DATABASES.join(", "),
            NAMES.join(", "),
            OF_STATEMENTS.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use adbc_core::error::Status;

    use super::*;

    /// Promise of the table of options: each name does something with its value.
    #[test]
    fn values_are_checked() {
        for name in NAMES {
            assert!(
                include_str!("lib.rs").contains(&format!("| `{name}`")),
                "{name}"
            );
            let mut settings = Settings::default();
            // A token may have any bytes that a header may have, so every value is accepted.
            if name == "dipc.token" {
                settings.set(name, "x".into()).unwrap();
                continue;
            }
            let error = settings.set(name, "no such value".into()).unwrap_err();
            assert_eq!(error.status, Status::InvalidArguments, "{name}");
            assert!(error.message.contains(name), "{error}");
            assert_eq!(settings.get(name).unwrap_err().status, Status::NotFound);
        }
        let mut settings = Settings::default();
        let error = settings.set("dipc.nothing", "x".into()).unwrap_err();
        assert_eq!(error.status, Status::NotImplemented);
        for name in NAMES.into_iter().chain(OF_DATABASES).chain(OF_STATEMENTS) {
            assert!(error.message.contains(name), "{error}");
        }
        let error = settings.set("dipc.header.Upper", "x".into()).unwrap_err();
        assert_eq!(error.status, Status::InvalidArguments);
        let error = settings.set("dipc.deadline", (-1_i64).into()).unwrap_err();
        assert!(error.message.contains("dipc.deadline"), "{error}");
    }

    #[test]
    fn values_may_be_texts_or_numbers() {
        let mut settings = Settings::default();
        settings.set("dipc.deadline", 2.5.into()).unwrap();
        settings.set("dipc.window.bytes", 1024_i64.into()).unwrap();
        settings.set("dipc.window.batches", "2".into()).unwrap();
        settings.set("dipc.header.k", b"\xff".into()).unwrap();
        assert_eq!(settings.get("dipc.deadline").unwrap(), b"2.5");
        assert_eq!(settings.get("dipc.header.k").unwrap(), b"\xff");
        assert_eq!(settings.ingest_modes().unwrap(), ["create"]);
        let modes = "append, replace,";
        settings.set("dipc.ingest.modes", modes.into()).unwrap();
        assert_eq!(settings.ingest_modes().unwrap(), ["append", "replace"]);
        assert!(!settings.in_parts().unwrap());
        settings.set("dipc.parts", true.into()).unwrap();
        assert!(settings.in_parts().unwrap());
    }
}
