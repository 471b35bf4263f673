//! `tickwire hub key`.

use std::path::PathBuf;

use clap::Args;
use hub::Name;
use serde_json::json;

use super::super::print_line;
use crate::exit::Failure;
use crate::hub_api::{self, Access};

/// Options of `hub key`.
#[derive(Args, Clone, Debug)]
pub struct NewApiKey {
    /// File to create with the key, mode 0600; for the client.
    file: PathBuf,
    /// Key file of the hub; a line with the key's SHA-256 is appended. Send the hub SIGHUP then.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// What the key permits; each role includes those before it.
    #[arg(long, value_enum)]
    role: Access,
    /// Name of the client in logs: 1 to 32 of a-z 0-9 . _ -
    #[arg(long, value_parser = name)]
    name: Name,
    /// Prints JSON.
    #[arg(long)]
    pub(super) json: bool,
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

impl NewApiKey {
    pub(super) fn write(&self) -> Result<(), Failure> {
        let line = hub_api::create(&self.file, &self.keys, (self.role, self.name))?;
        if self.json {
            let digest = line.split(' ').next();
            let name = self.name.to_string();
            let role = self.role.name();
            let value = json!({"schema": 1, "sha256": digest, "role": role, "name": name});
            print_line(&value.to_string())
        } else {
            print_line(&line)
        }
    }
}
