//! The settings of UCX itself: by which names it takes them, and which there are.

use std::collections::HashMap;
use std::ffi::CString;

use ucx1_sys::{Api, UCS_OK, ucp_config_t};

use crate::error::{Error, Result};
use crate::transport::ucx::error::{error, version_text};
use crate::transport::ucx::info::printed;

/// The oldest UCX that takes the settings of its transports by their whole names. Older ones
/// compare what they are given with names that lack the transport's, and pass over the rest with a
/// warning.
const WHOLE_NAMES: (u32, u32, u32) = (1, 17, 0);

/// What they know settings of tcp by: no other transport has one of such a name.
const SHORT_NAMES: [&str; 14] = [
    "AF_PRIO",
    // RDMA-CM has the same, and there, too, an address is free when nobody listens at it.
    "CM_REUSEADDR",
    "CONN_NB",
    "KEEPCNT",
    "KEEPIDLE",
    "KEEPINTVL",
    "MAX_CONN_RETRIES",
    "NODELAY",
    "PORT_RANGE",
    "PREFER_DEFAULT",
    "PUT_ENABLE",
    "RX_SEG_SIZE",
    "SENDV_THRESH",
    "TX_SEG_SIZE",
];

/// The same of shared memory, where libdipc's own setting means each kind of it as well as the one.
const OF_SHARED_MEMORY: (&str, &str) = ("POSIX_ERROR_HANDLING", "ERROR_HANDLING");

/// Tables of settings that hold for one context; those of transports are the others.
const OF_CONTEXTS: [&str; 2] = ["UCP context", "UCS global"];
/// Tables of settings that are read when UCX is loaded, and never again.
const OF_THE_PROCESS: [&str; 2] = ["UCM", "UCS global (runtime read-only)"];

/// UCX's configuration, released on drop.
pub(super) struct Config {
    api: &'static Api,
    handle: *mut ucp_config_t,
}

impl Config {
    /// What UCX's defaults and the environment say.
    pub(super) fn read(api: &'static Api) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: no prefix and no file is what NULL means; `handle` is writable.
        let status =
            unsafe { api.ucp_config_read(std::ptr::null(), std::ptr::null(), &raw mut handle) };
        if status != UCS_OK {
            return Err(error(api, "cannot read UCX's configuration", status));
        }
        Ok(Self { api, handle })
    }

    /// UCX's handle, valid while `self` lives.
    pub(super) fn handle(&self) -> *const ucp_config_t {
        self.handle
    }

    /// Sets `name`, as the environment has it without `UCX_`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the setting does not take the value. A name that is unknown is not
    /// noticed before [`ensure_taken`].
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let no_zero = |_| Error::invalid_argument("a setting of UCX has a zero byte in it");
        let key = CString::new(name_within(self.api.version(), name)).map_err(no_zero)?;
        let text = CString::new(value).map_err(no_zero)?;
        // SAFETY: the configuration was read and not released; both strings end with a zero and
        // are copied.
        let status =
            unsafe { (self.api).ucp_config_modify(self.handle, key.as_ptr(), text.as_ptr()) };
        if status != UCS_OK {
            // Newer ones refuse a name here, by the same status as a value.
            ensure_taken(self.api, [name])?;
            return Err(Error::invalid_argument(format!(
                "UCX does not take ucx.{name}={value}: it says \"{}\"",
                self.api.status_text(status)
            )));
        }
        Ok(())
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: read in `read` and released only here.
        unsafe { self.api.ucp_config_release(self.handle) };
    }
}

/// The name by which a UCX of that version takes the setting `name`.
fn name_within(version: (u32, u32, u32), name: &str) -> &str {
    if version >= WHOLE_NAMES {
        return name;
    }
    if name == OF_SHARED_MEMORY.0 {
        return OF_SHARED_MEMORY.1;
    }
    let short = name.strip_prefix("TCP_");
    short
        .filter(|short| SHORT_NAMES.contains(short))
        .unwrap_or(name)
}

/// When a setting counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    ForAContext,
    ForATransport,
    AtLoading,
}

/// Makes sure that settings of these names have an effect. To be called after the first context was
/// made, which loads the transports: before it, those of some are unknown.
///
/// # Errors
///
/// `InvalidArgument`, with the first name that has none.
pub(super) fn ensure_taken<'a>(api: &Api, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut names = names.into_iter().peekable();
    if names.peek().is_none() {
        return Ok(());
    }
    let text = printed(|stream| {
        // SAFETY: the stream is open for writing; the modules were loaded with the first context.
        unsafe { api.print_settings(c"UCX_", stream) };
    });
    let known = parse(&text);
    // A UCX that does not tell its settings is believed.
    if known.is_empty() {
        return Ok(());
    }
    names.try_for_each(|name| {
        is_taken(api.version(), name, known.get(name).copied())
            .then_some(())
            .ok_or_else(|| refusal(api, name, known.contains_key(name)))
    })
}

fn is_taken(version: (u32, u32, u32), name: &str, counts: Option<Counts>) -> bool {
    match counts {
        Some(Counts::ForAContext) => true,
        Some(Counts::ForATransport) => version >= WHOLE_NAMES || name_within(version, name) != name,
        Some(Counts::AtLoading) | None => false,
    }
}

fn refusal(api: &Api, name: &str, is_known: bool) -> Error {
    let (version, library) = (version_text(api), api.path().display());
    Error::invalid_argument(if is_known {
        format!(
            "UCX {version} takes this setting from the environment alone: set UCX_{name} there \
             before the process starts, in place of ucx.{name}"
        )
    } else {
        format!(
            "UCX {version} ({library}) has no setting {name} (ucx.{name}), or cannot load the \
             transport that has it; `ucx_info -cf` lists those that there are"
        )
    })
}

/// The settings in what UCX prints of them: `UCX_NAME=value`, the tables' titles between.
fn parse(printed: &str) -> HashMap<&str, Counts> {
    let mut known = HashMap::new();
    let mut counts = Counts::ForATransport;
    for line in printed.lines() {
        let title = line.strip_prefix("# ");
        if let Some(title) = title.and_then(|title| title.strip_suffix(" configuration")) {
            counts = if OF_CONTEXTS.contains(&title) {
                Counts::ForAContext
            } else if OF_THE_PROCESS.contains(&title) {
                Counts::AtLoading
            } else {
                Counts::ForATransport
            };
        }
        // Those without a value have no effect any more.
        let setting = line.strip_prefix("UCX_").and_then(|it| it.split_once('='));
        if let Some((name, _)) = setting {
            // Some tables repeat others' names.
            let first = known.entry(name).or_insert(counts);
            if counts == Counts::ForAContext {
                *first = counts;
            }
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "#\n# UCS global configuration\n#\n\nUCX_LOG_LEVEL=WARN\n\n#\n\
        # UCS global (runtime read-only) configuration\n#\n\nUCX_HANDLE_ERRORS=bt\n\n\n#\n\
        # TCP-SOCKCM connection manager configuration\n#\nUCX_TCP_CM_REUSEADDR=n\n#\n\
        # tcp transport configuration\n#\nUCX_TCP_MAX_SHORT (deprecated)\nUCX_TCP_TX_SEG_SIZE=8K\n\
        UCX_TCP_ALLOC=huge,heap\n#\n# UCP context configuration\n#\nUCX_TLS=all\n";

    /// Settings are found with their tables, and what has no effect any more is none.
    #[test]
    fn settings_are_known_by_their_tables() {
        let known = parse(PRINTED);
        assert_eq!(known["LOG_LEVEL"], Counts::ForAContext);
        assert_eq!(known["TLS"], Counts::ForAContext);
        assert_eq!(known["HANDLE_ERRORS"], Counts::AtLoading);
        assert_eq!(known["TCP_CM_REUSEADDR"], Counts::ForATransport);
        assert!(!known.contains_key("TCP_MAX_SHORT"));
        assert_eq!(known.len(), 6);
    }

    /// UCX before 1.17 has shorter names for tcp's settings; another transport's have no effect
    /// there.
    #[test]
    fn older_versions_take_settings_of_tcp_by_short_names() {
        let known = parse(PRINTED);
        for (version, within) in [
            ((1, 13, 1), "CM_REUSEADDR"),
            ((1, 17, 0), "TCP_CM_REUSEADDR"),
        ] {
            assert_eq!(name_within(version, "TCP_CM_REUSEADDR"), within);
            assert_eq!(name_within(version, "RNDV_THRESH"), "RNDV_THRESH");
            let taken = |name| is_taken(version, name, known.get(name).copied());
            assert!(taken("TLS") && taken("TCP_CM_REUSEADDR") && taken("TCP_TX_SEG_SIZE"));
            assert!(!taken("HANDLE_ERRORS") && !taken("NOSUCHKEY"));
            assert_eq!(taken("TCP_ALLOC"), version >= WHOLE_NAMES);
        }
    }
}
