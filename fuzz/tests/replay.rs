//! Runs every fuzz function on its committed corpus and on seeded mutations of it.
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use fuzz::FUNCTIONS;
use wire::{Generator, Seed};

/// Mutations per function unless `MUTATIONS` sets another number; about 10 s for all functions.
const MUTATIONS: u64 = 2_000;
/// Maximum length of a datagram, and of a record in a fuzz function.
const LEN_MAX: usize = 4_096;

#[test]
fn every_function_survives_its_corpus() {
    for (name, function) in FUNCTIONS {
        for (path, bytes) in corpus(name) {
            let result = std::panic::catch_unwind(|| function(&bytes));
            assert!(result.is_ok(), "{}", path.display());
        }
        function(&[]);
    }
}

#[test]
fn every_function_survives_mutations_of_its_corpus() {
    let mutations = std::env::var("MUTATIONS").map_or(MUTATIONS, |number| number.parse().unwrap());
    for (purpose, (name, function)) in (0..).zip(FUNCTIONS) {
        let mut generator = Seed::from_number(1).generator(purpose);
        let corpus: Vec<_> = corpus(name).into_iter().map(|(_, bytes)| bytes).collect();
        for number in 0..mutations {
            let mutant = mutant(&corpus, &mut generator);
            let result = std::panic::catch_unwind(|| function(&mutant));
            assert!(result.is_ok(), "{name}, mutation {number}: {mutant:02x?}");
        }
    }
}

/// F4 of TWP/1: every decoder of remote bytes, including those behind the AEAD.
#[test]
fn twp_f4_each_part_that_reads_remote_bytes_has_a_target_and_a_corpus() {
    for (part, functions) in [
        (
            "any datagram, at a server and at a client",
            &["udp_first_bytes"][..],
        ),
        ("HELLO", &["udp_hello"]),
        (
            "ACCEPT, RETRY, REFUSE, VERSION at a client",
            &["udp_accept", "udp_replies"],
        ),
        ("parameters", &["udp_params"]),
        (
            "a sealed token, and what is in it",
            &["crypto_token_open", "crypto_token_body"],
        ),
        ("packet headers", &["udp_packet_header"]),
        ("frames", &["udp_frames"]),
        ("acknowledgements", &["udp_ack_apply"]),
        ("reassembly and channels", &["udp_inbox"]),
        ("a peer that has the keys", &["udp_session"]),
        ("two ends and what is between them", &["udp_pair"]),
        ("typed messages", &["udp_codec"]),
    ] {
        for name in functions {
            assert!(
                FUNCTIONS.iter().any(|(known, _)| known == name),
                "{part}: {name}"
            );
            assert!(!corpus(name).is_empty(), "{part}: {name}");
        }
    }
}

#[test]
fn every_function_has_its_target_and_no_target_is_left_over() {
    let folder = root().join("libfuzzer/fuzz_targets");
    let manifest = fs::read_to_string(root().join("libfuzzer/Cargo.toml")).unwrap();
    for (name, _) in FUNCTIONS {
        let text = fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
        let call = format!("function(\"{name}\")");
        assert!(text.contains(&call), "{name}.rs does not call {call}");
        let entry = format!("name = \"{name}\"");
        assert!(manifest.contains(&entry), "the manifest lacks {entry}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), FUNCTIONS.len());
    assert_eq!(
        fs::read_dir(root().join("corpus")).unwrap().count(),
        FUNCTIONS.len()
    );
}

/// Returns the committed inputs of one function, sorted by name.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = root().join("corpus").join(name);
    let mut inputs: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns one input with up to 8 changes: a bit, a byte, a cut, an insertion, a piece of another
/// input.
fn mutant(corpus: &[Vec<u8>], generator: &mut Generator) -> Vec<u8> {
    let mut bytes = pick(corpus, generator).clone();
    for _ in 0..=generator.below(8) {
        let at = index(bytes.len() + 1, generator);
        let value = u8::try_from(generator.below(256)).unwrap();
        match generator.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, value),
            2 if at < bytes.len() => bytes[at] = value,
            3 if at < bytes.len() => bytes[at] ^= 1 << (value % 8),
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][usize::from(value % 5)],
            _ => {
                let other = pick(corpus, generator);
                let from = index(other.len() + 1, generator);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
        bytes.truncate(LEN_MAX);
    }
    bytes
}

fn pick<'a>(corpus: &'a [Vec<u8>], generator: &mut Generator) -> &'a Vec<u8> {
    &corpus[index(corpus.len(), generator)]
}

fn index(len: usize, generator: &mut Generator) -> usize {
    usize::try_from(generator.below(u64::try_from(len).unwrap())).unwrap()
}
