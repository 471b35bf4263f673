//! Compares this decoder with one in another language, which was written only from
//! docs/protocol.md.
//!
//! The test generates about 12,000 datagrams, plaintexts and keys: from two endpoints over a lossy
//! path, from the encoders with random fields, and by damage to both. It passes each, with the
//! results of `udp_proto` and `crypto`, to `twp.py`, which prints the differences.
#![cfg(test)]

mod handshake;
mod keys;
mod packets;
mod talk;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use wire::{Generator, Seed};

#[test]
#[ignore = "needs python3"]
fn a_decoder_written_from_the_page_agrees_on_10_000_datagrams() {
    let mut book = Book::new();
    talk::write(&mut book);
    handshake::write(&mut book);
    packets::write(&mut book);
    keys::write(&mut book);
    assert!(book.count >= 10_000, "{} lines", book.count);
    let (is_agreed, said) = book.read_in_python();
    eprintln!("{said}");
    assert!(is_agreed, "{said}");
    let sum = format!("{} decoded, 0 otherwise", book.count);
    assert!(said.contains(&sum), "{said}");
}

/// The second decoder finds one deliberate error, which shows that the comparison works.
#[test]
#[ignore = "needs python3"]
fn the_second_decoder_detects_differences_to_the_first() {
    let mut book = Book::new();
    book.put("first_byte", &[0xC1], &json!("hello"));
    book.put("first_byte", &[0xC2], &json!("hello"));
    let (is_agreed, said) = book.read_in_python();
    assert!(
        !is_agreed && said.contains("2 decoded, 1 otherwise"),
        "{said}"
    );
}

/// Input lines for the second decoder: bytes, with the first decoder's result.
struct Book {
    lines: String,
    count: usize,
    generator: Generator,
}

impl Book {
    fn new() -> Self {
        Self {
            lines: String::new(),
            count: 0,
            generator: Seed::from_number(1).generator(1),
        }
    }

    /// Adds an item that consists only of bytes.
    fn put(&mut self, kind: &str, bytes: &[u8], first: &Value) {
        self.put_with(kind, bytes, &json!({}), first);
    }

    /// Adds an item with additional fields in the object `more`.
    fn put_with(&mut self, kind: &str, bytes: &[u8], more: &Value, first: &Value) {
        let mut line = json!({ "kind": kind, "hex": hex(bytes), "first": first });
        for (name, value) in more.as_object().unwrap() {
            line[name] = value.clone();
        }
        self.lines.push_str(&line.to_string());
        self.lines.push('\n');
        self.count += 1;
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.generator.below(256)).unwrap()
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.generator.below(u64::try_from(len).unwrap())).unwrap()
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.generator.fill(&mut bytes);
        bytes
    }

    fn array<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        self.generator.fill(&mut bytes);
        bytes
    }

    /// Returns one of `choices`.
    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Changes one bit, byte or end, or inserts bytes.
    fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let at = self.index(bytes.len().max(1));
        let value = self.byte();
        match self.generator.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, value),
            2 => bytes.push(value),
            3 if at < bytes.len() => bytes[at] = value,
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][usize::from(value % 5)],
            _ if at < bytes.len() => bytes[at] ^= 1 << (value % 8),
            _ => {}
        }
        bytes
    }

    /// Returns whether the second decoder agrees, and its output.
    fn read_in_python(&self) -> (bool, String) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/second_decoder/twp.py");
        let mut child = Command::new("python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The child writes little before it has read everything, so there is no deadlock.
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(self.lines.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.success(), said)
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    digits.collect::<Vec<_>>().concat()
}
