//! Documents and their signatures, offline.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use crypto::{Provider, Ring};
use relay_mesh::config_text::TextError;
use relay_mesh::signed_config::{Document, DocumentError, ENVELOPE_LEN_MAX, Envelope};
use serde_json::json;
use wire::NodeId;

use super::super::print_line;
use crate::exit::{Failure, SystemFault};
use crate::relay::write_atomic;
use crate::trust;

/// Options of `admin sign`.
#[derive(Args, Clone, Debug)]
pub struct SignedDocument {
    /// The document, JSON, or a signed one that gets another signature.
    document: PathBuf,
    /// Key file of an admin; repeat for each signature.
    #[arg(long = "key", required = true)]
    keys: Vec<PathBuf>,
    /// File for the signed document; overwritten if it exists.
    #[arg(long)]
    out: PathBuf,
}

/// Options of `admin check`.
#[derive(Args, Clone, Debug)]
pub struct CheckedDocument {
    /// The document, JSON or signed.
    document: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl SignedDocument {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let envelope = sign(read(&self.document)?, &self.keys)?;
        let bytes = encode(&envelope);
        write_atomic(&self.out, &bytes).map_err(|error| not_written(&self.out, &error))?;
        describe(&envelope)
    }
}

impl CheckedDocument {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let envelope = read(&self.document)?;
        if !self.json {
            return describe(&envelope);
        }
        let document = document(&envelope)?;
        let signers: Vec<String> = envelope.signers().map(ToString::to_string).collect();
        let games: Vec<&String> = document.games.keys().collect();
        print_line(
            &json!({
                "schema": 1,
                "network": document.network,
                "version": document.version,
                "sha256": sha256(&envelope).to_string(),
                "threshold": document.admins.threshold(),
                "games": games,
                "signers": signers,
            })
            .to_string(),
        )
    }
}

pub(super) fn sign(mut envelope: Envelope, keys: &[PathBuf]) -> Result<Envelope, Failure> {
    let mut provider = Ring::new();
    for path in keys {
        let identity = trust::read_identity(path)?;
        let key = provider
            .signing_key(&identity)
            .map_err(|_| trust::no_entropy())?;
        envelope
            .sign(&mut provider, &key, *identity.public_key())
            .map_err(|error| Failure::file(path, error))?;
    }
    Ok(envelope)
}

/// Reads a signed document, or the text of one without signatures.
pub(super) fn read(path: &Path) -> Result<Envelope, Failure> {
    let fail = |what: &dyn std::fmt::Display| Failure::file(path, what);
    let at = |error: TextError| Failure::text(path, &error);
    let file = fs::File::open(path).map_err(|error| fail(&SystemFault(&error)))?;
    let limit = u64::try_from(ENVELOPE_LEN_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| fail(&SystemFault(&error)))?;
    if bytes.starts_with(MAGIC) {
        let envelope = Envelope::decode(&bytes).map_err(|error| fail(&error))?;
        let text = envelope.document();
        Document::read(text).map_err(|error| at(with_line(text, error)))?;
        return Ok(envelope);
    }
    Envelope::new(bytes.clone()).map_err(|error| at(with_line(&bytes, error)))
}

/// Adds the line and the found value to an error in `text`.
fn with_line(text: &[u8], error: DocumentError) -> TextError {
    if let DocumentError::At { place, fault } = error {
        TextError::of_rule(text, &place.to_string(), &fault.to_string())
    } else if let DocumentError::Json(error) = error {
        error
    } else {
        TextError::of_whole(error.to_string())
    }
}

pub(super) fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    let sentence = format!("{}: {error}", path.display());
    Failure::refused(sentence).in_file(path)
}

/// The encoding that a node accepts.
pub(super) fn encode(envelope: &Envelope) -> Vec<u8> {
    let mut bytes = Vec::new();
    envelope.encode(&mut bytes);
    bytes
}

fn document(envelope: &Envelope) -> Result<Document, Failure> {
    Document::read(envelope.document()).map_err(Failure::usage)
}

fn describe(envelope: &Envelope) -> Result<(), Failure> {
    let document = document(envelope)?;
    let admins = &document.admins;
    let signers = envelope.signers().filter(|key| admins.contains(key));
    print_line(&format!(
        "network {}, version {}, games: {}, signatures of its admins: {} ({} needed), sha256 {}",
        document.network,
        document.version,
        document.games.len(),
        signers.count(),
        admins.threshold(),
        sha256(envelope),
    ))
}

/// The hash of the text, as in `minimum` of a node's file.
fn sha256(envelope: &Envelope) -> NodeId {
    // A hash is written like a node id.
    NodeId(Ring::new().sha256(&[envelope.document()]))
}

/// Start of a signed document; an unsigned one starts with a brace.
const MAGIC: &[u8] = b"tw1 conf";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_document_names_line_field_and_found_value() {
        let page = include_str!("../../../../../docs/signed-config.md");
        let (_, rest) = page.split_once("```json\n").unwrap();
        let (good, _) = rest.split_once("```").unwrap();
        for (from, to, expected) in [
            (
                "192.0.2.7:5029",
                "192.0.2.7:502999",
                "line 20: games[0].server: found \"192.0.2.7:502999\"; the port is not within 1 to 65535",
            ),
            (
                "192.0.2.7:5029",
                "192.0.2.7:0",
                "line 20: games[0].server: found \"192.0.2.7:0\", which is no address that can be reached",
            ),
            (
                "\"threshold\": 1",
                "\"threshold\": 2",
                "line 8: admins.threshold: found 2, which is not within 1 to 1",
            ),
            (
                "\"mode\": \"shadow\"",
                "\"mode\": \"shade\"",
                "line 21: games[0].mode: found \"shade\"; expected one of \"single\", \"shadow\", \"dup\"",
            ),
            (
                "\"version\": 7",
                "\"version\": \"7\"",
                "line 3: version: found \"7\"; expected a whole number from 0 on",
            ),
        ] {
            let text = good.replacen(from, to, 1);
            let error = Document::read(text.as_bytes()).unwrap_err();
            assert_eq!(with_line(text.as_bytes(), error).to_string(), expected);
        }
    }
}
