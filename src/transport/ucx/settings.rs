//! The settings of UCX itself: by which names it takes them, and which there are.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Display;

use ucx1_sys::{
    Api, UCS_ERR_INVALID_PARAM, UCS_ERR_NO_DEVICE, UCS_ERR_NO_ELEM, UCS_OK, ucp_config_t,
    ucs_status_t,
};

use crate::error::{Error, Result, Status};
use crate::transport::ucx::error::{error, version_text};
use crate::transport::ucx::info::printed;
use crate::transport::ucx::log::{KeptLines, keep_lines_of};

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

/// Tables of settings that hold for one context; those of transports are the others.
const OF_CONTEXTS: [&str; 2] = ["UCP context", "UCS global"];
/// Tables of settings that are read when UCX is loaded, and never again.
const OF_THE_PROCESS: [&str; 2] = ["UCM", "UCS global (runtime read-only)"];

/// What every UCX reads when it is loaded; newer ones have more, which [`ensure_taken`] knows.
const KNOWN_OF_THE_PROCESS: [&str; 14] = [
    "BUILTIN_MEMCPY_MAX",
    "BUILTIN_MEMCPY_MIN",
    "ERROR_SIGNALS",
    "LOG_FILE",
    "LOG_FILE_ROTATE",
    "LOG_FILE_SIZE",
    "MEMTRACK_DEST",
    "PROFILE_FILE",
    "PROFILE_LOG_SIZE",
    "PROFILE_MODE",
    "RCACHE_STAT_MAX",
    "RCACHE_STAT_MIN",
    "VFS_ENABLE",
    "VFS_THREAD_AFFINITY",
];
/// How the names of UCM's settings begin, and no others'.
const OF_UCM: &str = "MEM_";

/// Lists of names that this machine may not have: how UCX's line about it begins, and the setting.
const LISTS: [(&str, &str); 5] = [
    ("transport", "TLS"),
    ("network device", "NET_DEVICES"),
    ("intra-node device", "SHM_DEVICES"),
    ("accelerator device", "ACC_DEVICES"),
    ("loopback device", "SELF_DEVICES"),
];

/// Whether every UCX reads this setting when it is loaded, and never again.
pub(super) fn is_of_the_process(name: &str) -> bool {
    name.starts_with(OF_UCM) || KNOWN_OF_THE_PROCESS.contains(&name)
}

/// Settings that UCX is given for a context: names and values.
#[derive(Debug, Clone)]
pub(super) struct GivenSettings(Vec<(String, String)>);

impl GivenSettings {
    pub(super) fn new(settings: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(settings.into_iter().collect())
    }

    /// Names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// What came of a call in which UCX reads its settings, by its status and by what it logged:
    /// it goes on with a value that a transport does not take, as if nothing had been said.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, with the setting and what UCX says of its value; or what the status says.
    pub(super) fn judge(
        &self,
        api: &Api,
        doing: impl Display,
        status: ucs_status_t,
        kept: KeptLines,
    ) -> Result<()> {
        let mut blamed = kept
            .texts()
            .filter_map(|line| Some((self.blamed(line)?, line)));
        let result = match blamed.next() {
            Some(((name, value), line)) => Err(value_refused(api, name, value, line)),
            None if status == UCS_OK => Ok(()),
            None => Err(self.failure(api, doing, status, &kept)),
        };
        drop(blamed);
        kept.log(result.is_err());
        result
    }

    /// The setting of these whose value UCX complains of in a line of its log.
    fn blamed(&self, line: &str) -> Option<(&str, &str)> {
        // The name comes without those of the tables that the setting is in.
        if let Some((end, said)) = line
            .strip_prefix("Invalid value for ")
            .and_then(|rest| rest.split_once(": '"))
        {
            let is_named = |name: &str| {
                let before = name.strip_suffix(end);
                before.is_some_and(|before| before.is_empty() || before.ends_with('_'))
            };
            return self
                .iter()
                .find(|(name, value)| is_named(name) && said.starts_with(&format!("{value}'")));
        }
        let (what, _) = line.split_once(" not available, please use")?;
        let (_, list) = LISTS.iter().find(|(title, _)| what.starts_with(title))?;
        self.iter().find(|(name, _)| name == list)
    }

    /// The failure of a call, with what may be to blame.
    fn failure(
        &self,
        api: &Api,
        doing: impl Display,
        status: ucs_status_t,
        kept: &KeptLines,
    ) -> Error {
        let given: Vec<_> = self
            .iter()
            .map(|(name, value)| format!("ucx.{name}={value}"))
            .collect();
        let with = match &*given {
            [] => String::new(),
            given => format!(" with {}", given.join(", ")),
        };
        let lines: Vec<_> = kept.texts().collect();
        let said = match &*lines {
            [] => String::new(),
            lines => format!(" and logs \"{}\"", lines.join("; ")),
        };
        let failed = error(api, format_args!("{doing}{with}"), status);
        // With these UCX refuses what it was told.
        let is_told_wrong = matches!(
            status,
            UCS_ERR_INVALID_PARAM | UCS_ERR_NO_DEVICE | UCS_ERR_NO_ELEM
        );
        let (status, remedy) = match (is_told_wrong, given.is_empty()) {
            (false, _) => (failed.status(), ""),
            (true, true) => (
                failed.status(),
                "; look at the UCX_ variables in the environment",
            ),
            (true, false) => (
                Status::InvalidArgument,
                "; change these settings, or UCX_ variables in the environment",
            ),
        };
        Error::new(status, format!("{}{said}{remedy}", failed.text()))
    }
}

/// The refusal of a value, for which UCX has this line.
fn value_refused(api: &Api, name: &str, value: &str, line: &str) -> Error {
    let remedy = if LISTS.iter().any(|(_, list)| *list == name) {
        "leave out what this machine does not have, or set ucx.WARN_INVALID_CONFIG=n, with which \
         UCX passes over it"
    } else {
        "give a value of that kind, or leave the setting out"
    };
    Error::invalid_argument(format!(
        "UCX {} does not take ucx.{name}={value}: it says \"{line}\"; {remedy}",
        version_text(api)
    ))
}

/// UCX's configuration, released on drop.
pub(super) struct Config {
    api: &'static Api,
    handle: *mut ucp_config_t,
}

impl Config {
    /// What UCX's defaults and the environment say.
    pub(super) fn read(api: &'static Api) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        let (status, kept) = keep_lines_of(|| {
            // SAFETY: no prefix and no file is what NULL means; `handle` is writable.
            unsafe { api.ucp_config_read(std::ptr::null(), std::ptr::null(), &raw mut handle) }
        });
        GivenSettings::new([]).judge(api, "cannot read UCX's configuration", status, kept)?;
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
    /// `InvalidArgument`: the setting does not take the value. [`ensure_taken`] finds unknown names
    /// later.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let no_zero = |_| Error::invalid_argument("a setting of UCX has a zero byte in it");
        let key = CString::new(name_within(self.api.version(), name)).map_err(no_zero)?;
        let text = CString::new(value).map_err(no_zero)?;
        let (status, kept) = keep_lines_of(|| {
            // SAFETY: the configuration was read and not released; both strings end with a zero
            // and are copied.
            unsafe { (self.api).ucp_config_modify(self.handle, key.as_ptr(), text.as_ptr()) }
        });
        if status == UCS_OK {
            kept.log(false);
            return Ok(());
        }
        let said = self.api.status_text(status);
        let line = kept.texts().next().unwrap_or(&said);
        let refused = value_refused(self.api, name, value, line);
        kept.log(true);
        // Newer ones refuse a name here, by the same status as a value.
        ensure_taken(self.api, [name])?;
        Err(refused)
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
    if name == "POSIX_ERROR_HANDLING" {
        return "ERROR_HANDLING";
    }
    let short = name.strip_prefix("TCP_");
    short
        .filter(|short| SHORT_NAMES.contains(short))
        .unwrap_or(name)
}

/// When a setting counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AppliesAt {
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

fn is_taken(version: (u32, u32, u32), name: &str, counts: Option<AppliesAt>) -> bool {
    match counts {
        Some(AppliesAt::ForAContext) => true,
        Some(AppliesAt::ForATransport) => {
            version >= WHOLE_NAMES || name_within(version, name) != name
        }
        Some(AppliesAt::AtLoading) | None => false,
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
fn parse(printed: &str) -> HashMap<&str, AppliesAt> {
    let mut known = HashMap::new();
    let mut counts = AppliesAt::ForATransport;
    for line in printed.lines() {
        let title = line.strip_prefix("# ");
        if let Some(title) = title.and_then(|title| title.strip_suffix(" configuration")) {
            counts = if OF_CONTEXTS.contains(&title) {
                AppliesAt::ForAContext
            } else if OF_THE_PROCESS.contains(&title) {
                AppliesAt::AtLoading
            } else {
                AppliesAt::ForATransport
            };
        }
        // Those without a value have no effect any more.
        let setting = line.strip_prefix("UCX_").and_then(|it| it.split_once('='));
        if let Some((name, _)) = setting {
            // Some tables repeat others' names.
            let first = known.entry(name).or_insert(counts);
            if counts == AppliesAt::ForAContext {
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

    /// A line of UCX's log is about the setting that it names the end of, with the same value, or
    /// about a list of what there is; others blame none.
    #[test]
    fn lines_blame_the_setting_that_they_are_about() {
        let given = [
            ("TCP_TX_SEG_SIZE", "abc"),
            ("TCP_CM_REUSEADDR", "maybe"),
            ("TLS", "tcp,nosuch"),
            ("NET_DEVICES", "nodev"),
        ];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let given = GivenSettings::new(given);
        let blamed = |line: String| given.blamed(&line).map(|(name, _)| name);
        let unfit = |name, value| format!("Invalid value for {name}: '{value}'. Expected: other");
        for (name, value, setting) in [
            ("TX_SEG_SIZE", "abc", Some("TCP_TX_SEG_SIZE")),
            ("TCP_TX_SEG_SIZE", "abc", Some("TCP_TX_SEG_SIZE")),
            ("REUSEADDR", "maybe", Some("TCP_CM_REUSEADDR")),
            ("EG_SIZE", "abc", None),
            ("TX_SEG_SIZE", "abcd", None),
            ("RX_SEG_SIZE", "abc", None),
        ] {
            assert_eq!(blamed(unfit(name, value)), setting, "{name}={value}");
        }
        let lacks = |what| format!("{what} not available, please use one or more of: 'lo'(tcp)");
        assert_eq!(blamed(lacks("transport 'nosuch' is")), Some("TLS"));
        assert_eq!(blamed(lacks("transports 'a','b' are")), Some("TLS"));
        assert_eq!(
            blamed(lacks("network device 'nodev' is")),
            Some("NET_DEVICES")
        );
        assert_eq!(blamed(lacks("intra-node device 'nodev' is")), None);
        assert_eq!(blamed("something else about TLS".to_owned()), None);
    }

    /// Settings are found with their tables, and what has no effect any more is none.
    #[test]
    fn settings_are_known_by_their_tables() {
        let known = parse(PRINTED);
        assert_eq!(known["LOG_LEVEL"], AppliesAt::ForAContext);
        assert_eq!(known["TLS"], AppliesAt::ForAContext);
        assert_eq!(known["HANDLE_ERRORS"], AppliesAt::AtLoading);
        assert_eq!(known["TCP_CM_REUSEADDR"], AppliesAt::ForATransport);
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
