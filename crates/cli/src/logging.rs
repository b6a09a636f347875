//! The log on stderr: lines of text, or of JSON.

use std::fmt::Debug;
use std::io::Write;
use std::str::FromStr;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, Targets, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::display;

/// What `--log` says.
#[derive(Debug, Clone, Copy)]
pub struct LogChoice {
    /// The least severe level that is logged.
    pub level: LevelFilter,
    json: bool,
}

impl FromStr for LogChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut level, mut json) = (None, false);
        for part in text.split(',') {
            match part.parse() {
                _ if part == "json" => json = true,
                Ok(found) if level.is_none() && !part.is_empty() => level = Some(found),
                _ => {
                    return Err(
                        "it is off, error, warn, info, debug or trace, or one of these and json, \
                         as info,json"
                            .to_owned(),
                    );
                }
            }
        }
        Ok(Self {
            level: level.unwrap_or(LevelFilter::INFO),
            json,
        })
    }
}

/// Begins to log to stderr. The log may contain text of a peer. A closed stderr cannot be reported.
pub fn install(choice: LogChoice) {
    // The logs of dependencies, such as every frame of HTTP/2, are left out.
    let ours = Targets::new().with_target("dipc", choice.level);
    let registry = tracing_subscriber::registry();
    if choice.json {
        let lines = JsonLines(std::io::stderr);
        registry.with(lines.with_filter(ours)).init();
        return;
    }
    // Lines of text name the stream themselves.
    let events = filter_fn(|metadata| metadata.is_event());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| display::Escaped(std::io::stderr()))
        .with_target(false)
        .log_internal_errors(false);
    registry.with(lines.with_filter(ours.and(events))).init();
}

/// Most bytes of one text in a line of JSON, because peers can cause long texts. The line itself is
/// not cut: it would be no JSON.
const MAX_TEXT: usize = 1024;

/// Writes each event as a JSON object, on one line.
struct JsonLines<W>(W);

/// Fields of an event or of a span.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let shown = &value[..value.floor_char_boundary(MAX_TEXT)];
        let cut = if shown.len() < value.len() { "…" } else { "" };
        self.add(field, format!("{shown}{cut}").into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let text = fields.0.remove("message").unwrap_or_default();
        let mut time = String::new();
        // It fails for no string.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let spans = context.event_scope(event).into_iter();
        let spans = spans.flat_map(|scope| scope.from_root()).map(|span| {
            let mut of_span = Map::new();
            of_span.insert("name".to_owned(), span.name().into());
            if let Some(fields) = span.extensions().get::<Fields>() {
                of_span.extend(fields.0.clone());
            }
            Value::Object(of_span)
        });
        let metadata = event.metadata();
        let line = json!({
            "time": time,
            "level": metadata.level().as_str(),
            "target": metadata.target(),
            "text": text,
            "fields": fields.0,
            "spans": spans.collect::<Vec<_>>(),
        });
        let mut line = display::escape_json(&line.to_string()).into_owned();
        line.push('\n');
        let _ = self.0.make_writer().write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A long text of a peer leaves the line whole, and bounded.
    #[test]
    fn a_long_text_is_cut_and_its_line_is_json() {
        #[derive(Clone, Default)]
        struct Written(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);
        impl Write for Written {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::registry().with(JsonLines(move || writer.clone()));
        let long = "é\u{1b}\n\"".repeat(10_000);
        tracing::subscriber::with_default(lines, || {
            tracing::error_span!("outer", long).in_scope(|| {
                tracing::error!(long, number = 7, "{long}");
            });
        });
        let line = String::from_utf8(written.0.lock().clone()).unwrap();
        assert!(line.len() < 20_000, "{}", line.len());
        assert!(!line.contains('\u{1b}'));
        assert_eq!(line.matches('\n').count(), 1);
        let read: Value = serde_json::from_str(&line).unwrap();
        assert!(read["text"].as_str().unwrap().starts_with("é\u{1b}\n\""));
        assert!(read["spans"][0]["long"].as_str().unwrap().ends_with('…'));
        assert_eq!(read["fields"]["number"], 7);
    }

    /// `--log` takes a level, a format, or both.
    #[test]
    fn a_choice_is_a_level_and_a_format() {
        let parsed = |text: &str| {
            let choice = text.parse::<LogChoice>().ok()?;
            Some((choice.level, choice.json))
        };
        assert_eq!(parsed("warn"), Some((LevelFilter::WARN, false)));
        assert_eq!(parsed("json"), Some((LevelFilter::INFO, true)));
        assert_eq!(parsed("debug,json"), Some((LevelFilter::DEBUG, true)));
        assert_eq!(parsed("json,off"), Some((LevelFilter::OFF, true)));
        for bad in ["", "loud", "info,debug", "info,", "xml"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
