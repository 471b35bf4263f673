//! Documents and their signatures, without a network.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use crypto::{Provider, Ring};
use relay_mesh::signed_config::{Document, ENVELOPE_LEN_MAX, Envelope};
use serde_json::json;

use super::super::say;
use crate::exit::Failure;
use crate::relay::replace;
use crate::trust;

/// A document to be signed.
#[derive(Args, Clone, Debug)]
pub struct SignedDocument {
    /// The document, JSON, or a signed one that gets another signature.
    document: PathBuf,
    /// The key file of an admin; once for each that signs here.
    #[arg(long = "key", required = true)]
    keys: Vec<PathBuf>,
    /// Where the signed document goes; what is there is written over.
    #[arg(long)]
    out: PathBuf,
}

/// A document to be looked at.
#[derive(Args, Clone, Debug)]
pub struct CheckedDocument {
    /// The document, JSON or signed.
    document: PathBuf,
    /// Answers in JSON.
    #[arg(long)]
    json: bool,
}

impl SignedDocument {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let envelope = sign(read(&self.document)?, &self.keys)?;
        let bytes = encode(&envelope);
        replace(&self.out, &bytes).map_err(|error| not_written(&self.out, &error))?;
        describe(&envelope)
    }
}

impl CheckedDocument {
    pub(super) const fn is_json(&self) -> bool {
        self.json
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        let envelope = read(&self.document)?;
        if !self.json {
            return describe(&envelope);
        }
        let document = document(&envelope)?;
        let signers: Vec<String> = envelope.signers().map(ToString::to_string).collect();
        let games: Vec<&String> = document.games.keys().collect();
        say(&json!({
            "schema": 1,
            "network": document.network,
            "version": document.version,
            "threshold": document.admins.threshold(),
            "games": games,
            "signers": signers,
        })
        .to_string())
    }
}

/// Signs with each of the keys.
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
    let file = fs::File::open(path).map_err(|error| fail(&error))?;
    let limit = u64::try_from(ENVELOPE_LEN_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| fail(&error))?;
    let envelope = if bytes.starts_with(MAGIC) {
        let envelope = Envelope::decode(&bytes).map_err(|error| fail(&error))?;
        Document::read(envelope.document()).map_err(|error| fail(&error))?;
        envelope
    } else {
        Envelope::new(bytes).map_err(|error| fail(&error))?
    };
    Ok(envelope)
}

/// The system does not take what is written to `path`.
pub(super) fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    let sentence = format!("{}: {error}", path.display());
    Failure::refused(sentence).in_file(path)
}

/// The bytes that a node takes.
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
    say(&format!(
        "network {}, version {}, {} games, signed by {} of the {} who have to sign the next",
        document.network,
        document.version,
        document.games.len(),
        envelope
            .signers()
            .filter(|key| document.admins.contains(key))
            .count(),
        document.admins.threshold(),
    ))
}

/// What a signed document begins with; the text of one begins with a brace.
const MAGIC: &[u8] = b"tw1 conf";
