//! Checks that nothing below `servicer` uses tokio, a clock, a thread, a socket, a file or the
//! system's randomness.

use super::PROTOCOL;
use crate::source::{Source, closing, has_word, line_of, words};
use crate::tree::{Finding, View, crate_of};

/// Names forbidden in protocol crates, with descriptions.
const NAMES: [(&str, &str); 13] = [
    ("tokio", "an executor"),
    ("mio", "a socket"),
    ("Instant::now", "a clock"),
    ("SystemTime", "a clock"),
    ("std::time::Instant", "a clock"),
    ("std::thread", "a thread"),
    ("thread::spawn", "a thread"),
    ("thread::sleep", "a thread"),
    ("thread::Builder", "a thread"),
    ("UdpSocket", "a socket"),
    ("TcpStream", "a socket"),
    ("TcpListener", "a socket"),
    ("std::process", "a process"),
];
/// System randomness, which only the providers of `crypto` may use.
const RANDOMNESS: [&str; 5] = ["getrandom", "OsRng", "SysRng", "SystemRandom", "thread_rng"];
/// Modules of std that a grouped import may hide.
const MODULES: [(&str, &str); 3] = [
    ("thread", "a thread"),
    ("process", "a process"),
    ("fs", "a file"),
];

/// This file may use the file system, because it only reads and writes identity files (PEM, mode
/// 0600).
const IDENTITY_FILE: &str = "crates/crypto/src/identity_file.rs";

/// quinn-proto's clock type; the driver passes in the instants.
const QUIC_CLOCK: &str = "crates/relay_mesh/src/tunnel/quic.rs";

/// Finds such names in the code of protocol crates, except in comments, literals and tests.
pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &view.sources {
        let Some(name) = crate_of(source.path).filter(|name| PROTOCOL.contains(name)) else {
            continue;
        };
        let code = &source.shipped;
        let mut find = |offset, what: &str| {
            let fault = format!("{name} names {what}; that is for servicer and above");
            findings.push(Finding::at(source.path, line_of(code, offset), fault));
        };
        let is_identity_file = source.path == IDENTITY_FILE;
        for (needle, what) in NAMES {
            let is_quic_clock = source.path == QUIC_CLOCK && needle == "std::time::Instant";
            if is_quic_clock || is_identity_file && what == "a process" {
                continue;
            }
            words(code, needle).for_each(|offset| find(offset, what));
        }
        if name != "crypto" {
            for needle in RANDOMNESS {
                words(code, needle).for_each(|offset| find(offset, "the system's randomness"));
            }
        }
        let may_name_files = is_identity_file || name == "hub" && implements_segment_file(source);
        if !may_name_files {
            words(code, "std::fs").for_each(|offset| find(offset, "a file"));
        }
        for (offset, what) in grouped(code) {
            if !(may_name_files && what == "a file") {
                find(offset, what);
            }
        }
    }
    findings
}

/// Returns whether the file implements the storage trait that a fault-injecting layer also
/// implements.
fn implements_segment_file(source: &Source<'_>) -> bool {
    has_word(&source.shipped, "SegmentFile for")
}

/// Returns the modules of std imported by `use std::{...}`.
fn grouped(code: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for start in words(code, "std::{") {
        let open = start + "std::".len();
        let group = code.get(open..closing(code, open).unwrap_or(code.len()));
        for (module, what) in MODULES {
            if group.is_some_and(|group| has_word(group, module)) {
                found.push((start, what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Workspace;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let workspace = Workspace::of(&[(path, text)]);
        let findings = check(&workspace.view());
        findings.into_iter().map(|finding| finding.fault).collect()
    }

    #[test]
    fn finds_each_name_in_code() {
        let mut lines: Vec<String> = NAMES
            .iter()
            .map(|(name, _)| format!("use {name};"))
            .collect();
        lines.extend(RANDOMNESS.iter().map(|name| format!("use {name};")));
        lines.push("use std::fs::File;".to_owned());
        lines.push("use std::{collections::BTreeMap, thread};".to_owned());
        for line in lines {
            assert_eq!(faults("crates/lockstep/src/a.rs", &line).len(), 1, "{line}");
            assert!(
                faults("crates/servicer/src/a.rs", &line).is_empty(),
                "{line}"
            );
        }
    }

    #[test]
    fn comments_strings_tests_and_longer_names_do_not_count() {
        let text = "/// Unlike `tokio`.\nfn a() { b(\"std::thread\"); thread_local! {} }\n\
                    struct MyUdpSocketLike; /* SystemTime */\n\
                    #[cfg(test)]\nmod tests { use std::thread; }\n";
        assert_eq!(faults("crates/wire/src/a.rs", text), [""; 0]);
    }

    #[test]
    fn hub_names_files_only_behind_its_trait() {
        let import = "use std::{fs, io};\nuse std::fs::File;\n";
        assert_eq!(faults("crates/hub/src/node.rs", import).len(), 2);
        let behind = format!("{import}impl SegmentFile for Disk {{}}");
        assert!(faults("crates/hub/src/log/disk.rs", &behind).is_empty());
        assert_eq!(faults("crates/lockstep/src/disk.rs", &behind).len(), 2);
    }

    #[test]
    fn crypto_names_files_in_one_place_only() {
        let import = "use std::fs::File;\nuse std::thread;";
        assert_eq!(faults(IDENTITY_FILE, import).len(), 1);
        assert_eq!(faults("crates/crypto/src/identity.rs", import).len(), 2);
    }

    #[test]
    fn providers_draw_randomness() {
        let draw = "use ring::rand::SystemRandom;";
        assert!(faults("crates/crypto/src/provider/ring.rs", draw).is_empty());
        assert_eq!(faults("crates/hub/src/node.rs", draw).len(), 1);
    }
}
