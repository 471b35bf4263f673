//! Logs on stderr, filtered by `TICKWIRE_LOG`.

use std::env::{self, VarError};
use std::io;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;

/// Writes logs to stderr, filtered by the environment variable `TICKWIRE_LOG`.
pub(super) fn log() -> Result<(), Failure> {
    let filter = match env::var(VARIABLE) {
        Ok(text) => text,
        Err(VarError::NotPresent) => String::new(),
        Err(VarError::NotUnicode(_)) => {
            return Err(Failure::usage(format_args!("{VARIABLE} is no UTF-8")));
        }
    };
    let targets = parse(&filter).map_err(|directive| {
        let sentence = format!(
            "{VARIABLE}: found {directive:?}, expected {LEVELS}, or TARGET=LEVEL, separated by \
             commas, such as info,daemon::edge=debug"
        );
        Failure::usage(sentence).in_field(VARIABLE)
    })?;
    let lines = tracing_subscriber::fmt::layer()
        // Reporting a failed write on the same stderr would end the thread.
        .log_internal_errors(false)
        .with_writer(io::stderr);
    let subscriber = tracing_subscriber::registry().with(lines).with(targets);
    // A subscriber that the embedding program has set stays.
    drop(subscriber.try_init());
    Ok(())
}

/// Parses a filter: comma-separated directives, each a level for all targets or `TARGET=LEVEL`.
/// Targets without a directive have level `info`.
fn parse(filter: &str) -> Result<Targets, &str> {
    let mut targets = Targets::new().with_default(LevelFilter::INFO);
    for directive in filter.split(',') {
        let directive = directive.trim();
        if directive.is_empty() {
            continue;
        }
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (Some(target.trim()), level.trim()),
            None => (None, directive),
        };
        let level: LevelFilter = level.parse().map_err(|_| directive)?;
        targets = match target {
            None => targets.with_default(level),
            Some(target) if is_target(target) => targets.with_target(target, level),
            Some(_) => return Err(directive),
        };
    }
    Ok(targets)
}

fn is_target(text: &str) -> bool {
    text.split("::").all(|name| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !name.is_empty() && name.bytes().all(is_allowed)
    })
}

const VARIABLE: &str = "TICKWIRE_LOG";
const LEVELS: &str = "off, error, warn, info, debug or trace";

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn filters_are_parsed() {
        for (filter, target, most) in [
            ("", "daemon", Some(Level::INFO)),
            ("error", "daemon", Some(Level::ERROR)),
            ("TRACE", "daemon", Some(Level::TRACE)),
            ("off", "daemon", None),
            (
                "off,daemon::edge=debug",
                "daemon::edge::door",
                Some(Level::DEBUG),
            ),
            ("off,daemon::edge=debug", "daemon::role", None),
            // Targets without a directive keep their level.
            ("daemon=debug", "servicer", Some(Level::INFO)),
            (" warn , daemon = Debug ,", "daemon", Some(Level::DEBUG)),
        ] {
            let targets = parse(filter).unwrap();
            let all = [
                Level::ERROR,
                Level::WARN,
                Level::INFO,
                Level::DEBUG,
                Level::TRACE,
            ];
            let shown = all
                .iter()
                .rev()
                .find(|level| targets.would_enable(target, level));
            assert_eq!(shown.copied(), most, "{filter} {target}");
        }
    }

    #[test]
    fn the_first_invalid_directive_is_named() {
        for (filter, wrong) in [
            ("eror", "eror"),
            ("info,debg", "debg"),
            ("daemon=debg", "daemon=debg"),
            ("daemon:edge=debug", "daemon:edge=debug"),
            ("=debug", "=debug"),
            ("daemon", "daemon"),
            ("daemon[span]=debug", "daemon[span]=debug"),
            ("daemon=debug=info", "daemon=debug=info"),
        ] {
            assert_eq!(parse(filter).err(), Some(wrong));
        }
    }
}
