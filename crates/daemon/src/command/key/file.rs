//! Key files: create, import, show.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use crypto::identity_file::{self, FILE_LEN_MAX, IdentityFileError};
use crypto::{Identity, PemError, PublicKey, Ring};
use serde::Serialize;
use zeroize::Zeroizing;

use super::super::print_line;
use crate::exit::{Exit, Failure};
use crate::trust;

/// Options of `key new`.
#[derive(Args, Clone, Debug)]
pub struct NewKey {
    /// File to create, with mode 0600.
    file: PathBuf,
    #[command(flatten)]
    pub(super) style: Style,
}

/// Options of `key import`.
#[derive(Args, Clone, Debug)]
pub struct CopiedKey {
    /// PEM of a P-256 key, PKCS#8 or SEC1, without a passphrase; - for stdin.
    from: PathBuf,
    /// File to create, with mode 0600.
    file: PathBuf,
    #[command(flatten)]
    pub(super) style: Style,
}

/// Options of `key public`.
#[derive(Args, Clone, Debug)]
pub struct PublicPart {
    /// Identity file in PEM, or file of a public key.
    file: PathBuf,
    /// Prints PEM for other programs.
    #[arg(long, conflicts_with = "json")]
    pem: bool,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `key show`.
#[derive(Args, Clone, Debug)]
pub struct ShownKey {
    /// Identity file in PEM, or file of a public key.
    file: PathBuf,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Format of the file and of the output.
#[derive(Args, Clone, Debug)]
pub(super) struct Style {
    /// PEM format of the private key.
    #[arg(long, value_enum, default_value_t)]
    form: Form,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// PEM format of a private key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Form {
    /// `PRIVATE KEY`; RFC 5958.
    #[default]
    Pkcs8,
    /// `EC PRIVATE KEY`; RFC 5915.
    Sec1,
}

impl NewKey {
    pub(super) fn write(&self) -> Result<(), Failure> {
        let identity = Identity::generate(&mut Ring::new()).map_err(|_| trust::no_entropy())?;
        self.style.write(&self.file, &identity)
    }
}

impl CopiedKey {
    pub(super) fn write(&self) -> Result<(), Failure> {
        let identity = if self.from == Path::new("-") {
            from_stdin()?
        } else {
            trust::read_identity(&self.from)?
        };
        self.style.write(&self.file, &identity)
    }
}

impl Style {
    fn write(&self, path: &Path, identity: &Identity) -> Result<(), Failure> {
        let written = match self.form {
            Form::Pkcs8 => identity_file::write_new(path, identity),
            Form::Sec1 => identity_file::write_new_sec1(path, identity),
        };
        written.map_err(|error| {
            let mut failure = Failure::file(path, error);
            if error == IdentityFileError::Exists {
                failure.exit = Exit::Refused;
            }
            failure
        })?;
        if self.json {
            print_json_error(None, identity.public_key())
        } else {
            print_line(&lines(identity.public_key()))
        }
    }
}

impl PublicPart {
    pub(super) fn show(&self) -> Result<(), Failure> {
        let (_, key) = read(&self.file)?;
        if self.pem {
            let text = key.to_pem().map_err(Failure::usage)?;
            print_line(text.trim_end())
        } else if self.json {
            print_json_error(None, &key)
        } else {
            print_line(&lines(&key))
        }
    }
}

impl ShownKey {
    pub(super) fn show(&self) -> Result<(), Failure> {
        let (kind, key) = read(&self.file)?;
        if self.json {
            print_json_error(Some(kind), &key)
        } else {
            print_line(&format!("holds      {kind}\n{}", lines(&key)))
        }
    }
}

fn lines(key: &PublicKey) -> String {
    format!("public key {key}\nnode id    {}", key.node_id())
}

fn print_json_error(kind: Option<Kind>, key: &PublicKey) -> Result<(), Failure> {
    let shown = Shown {
        schema: 1,
        kind,
        public_key: key.to_string(),
        node_id: key.node_id().to_string(),
    };
    print_line(&serde_json::to_string(&shown).unwrap_or_default())
}

#[derive(Serialize)]
struct Shown {
    schema: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    public_key: String,
    node_id: String,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Identity,
    PublicKey,
}

wire::display_text! { Kind {
    Self::Identity => "an identity: its private key and public key",
    Self::PublicKey => "a public key",
}}

fn read(path: &Path) -> Result<(Kind, PublicKey), Failure> {
    let error = match identity_file::read(path) {
        Ok(identity) => return Ok((Kind::Identity, *identity.public_key())),
        Err(error) => error,
    };
    let fail = |why: &dyn fmt::Display| Failure::file(path, why);
    // A public key may be readable by others, and is not an identity.
    let may_be_public = matches!(
        error,
        IdentityFileError::TooOpen { .. } | IdentityFileError::Pem(PemError::NoKey)
    );
    if !may_be_public {
        return Err(fail(&error));
    }
    let file = std::fs::File::open(path).map_err(|error| fail(&error))?;
    let text = bounded(file).map_err(|error| fail(&error))?;
    match (Identity::from_pem(&text), PublicKey::from_pem(&text)) {
        (Err(PemError::NoKey), Ok(key)) => Ok((Kind::PublicKey, key)),
        (Err(PemError::NoKey), Err(why)) => Err(fail(&why)),
        // A private key that others may have read.
        (Ok(_) | Err(_), _) => Err(fail(&error)),
    }
}

fn from_stdin() -> Result<Identity, Failure> {
    let fail = |why: &dyn fmt::Display| Failure::usage(format_args!("stdin: {why}"));
    let text = bounded(io::stdin().lock()).map_err(|error| fail(&error))?;
    Identity::from_pem(&text).map_err(|error| fail(&error))
}

/// Reads at most the length of an identity file.
fn bounded(from: impl Read) -> Result<Zeroizing<String>, IdentityFileError> {
    // Filled without growing, since growing leaves copies in memory.
    let mut text = Zeroizing::new(String::with_capacity(FILE_LEN_MAX.saturating_add(1)));
    let limit = u64::try_from(FILE_LEN_MAX)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    from.take(limit).read_to_string(&mut text)?;
    if text.len() > FILE_LEN_MAX {
        return Err(IdentityFileError::TooLong);
    }
    Ok(text)
}
