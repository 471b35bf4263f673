//! `tickwire key`.

mod file;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use crypto::{Provider, Ring};
use hub::join_file::{Grant, JoinFault, NetworkSecret, check_address};
use hub::{GrantTerms, JoinFile, Name, Role};
use servicer::{ClaimIssuer, Clock};
use wire::{ClientId, NodeId};

use super::print_line;
use crate::exit::Failure;
use crate::hex;
use crate::link::MATCHMAKER;
use crate::trust;
pub use file::{CopiedKey, NewKey, PublicPart, ShownKey};

/// Commands for keys.
#[derive(Clone, Debug, Subcommand)]
pub enum KeyCommand {
    /// Creates an identity, writes it to a new file, and prints its public part.
    New(NewKey),
    /// Imports an identity from a PEM file, for example of openssl, into a new file, and prints its
    /// public part.
    Import(CopiedKey),
    /// Prints the public part of an identity.
    Public(PublicPart),
    /// Describes a key file without printing secrets.
    Show(ShownKey),
    /// Writes a new join file: a secret for the network, and the members with their roles.
    JoinFile(NewJoinFile),
    /// Prints a grant, in hexadecimal digits, with which one node may claim one player.
    ClaimGrant(NewClaimGrant),
}

/// Options of `key claim-grant`.
#[derive(Args, Clone, Debug)]
pub struct NewClaimGrant {
    /// Identity file of the issuer; the join file marks its key with `issues=claims`.
    #[arg(long)]
    identity: PathBuf,
    /// The player.
    #[arg(long)]
    player: u64,
    /// The node that may claim it: an identity file or a node id.
    #[arg(long)]
    node: String,
    /// For how many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3_600)]
    valid: u32,
}

impl NewClaimGrant {
    fn print(&self) -> Result<(), Failure> {
        let identity = trust::read_identity(&self.identity)?;
        let terms = GrantTerms {
            player: ClientId(self.player),
            node: resolve_node(&self.node)?,
            not_after: Clock::new().unix_time() + Duration::from_secs(self.valid.into()),
        };
        let issued = ClaimIssuer::new(&identity).and_then(|mut issuer| issuer.issue(&terms));
        let grant = issued.map_err(|_| trust::no_entropy())?;
        print_line(&hex::encode(grant.as_bytes()))
    }
}

fn resolve_node(text: &str) -> Result<NodeId, Failure> {
    match text.parse::<NodeId>() {
        Ok(node) => Ok(node),
        Err(_) => Ok(trust::read_identity(Path::new(text))?.node_id()),
    }
}

/// Options of `key join-file`.
#[derive(Args, Clone, Debug)]
pub struct NewJoinFile {
    /// File to create.
    file: PathBuf,
    /// ROLE=KEY[,name=NAME][,service=NAME][,address=HOST:PORT][,issues=claims]; KEY is an identity file or a node
    /// id. A hub needs an address; a matchmaker has the service `matchmaker` by default.
    #[arg(required = true, value_name = "GRANT")]
    grants: Vec<GrantText>,
}

impl KeyCommand {
    pub(super) const fn is_json(&self) -> bool {
        match self {
            Self::New(new) => new.style.json,
            Self::Import(copied) => copied.style.json,
            Self::Public(public) => public.json,
            Self::Show(shown) => shown.json,
            Self::JoinFile(_) | Self::ClaimGrant(_) => false,
        }
    }

    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::New(new) => new.write(),
            Self::Import(copied) => copied.write(),
            Self::Public(public) => public.show(),
            Self::Show(shown) => shown.show(),
            Self::JoinFile(new) => new.write(),
            Self::ClaimGrant(new) => new.print(),
        }
    }
}

impl NewJoinFile {
    fn write(&self) -> Result<(), Failure> {
        let mut secret = [0; 32];
        Ring::new()
            .random(&mut secret)
            .map_err(|_| trust::no_entropy())?;
        let mut join_file = JoinFile::new(NetworkSecret::new(secret));
        for grant in &self.grants {
            join_file.grants.push(grant.resolve()?);
        }
        if join_file.with_role(Role::Hub).next().is_none() {
            let sentence = "a join file names a hub: give hub=KEY,address=HOST:PORT";
            return Err(Failure::usage(sentence));
        }
        // Parsed again before it is written: each grant was checked alone, the file as a whole was
        // not.
        JoinFile::parse(&join_file.to_text()).map_err(|error| Failure::usage(error.fault))?;
        trust::write_new_join_file(&self.file, &join_file)?;
        for grant in &join_file.grants {
            print_line(&grant.to_string())?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct GrantText {
    role: Role,
    /// An identity file or a node id.
    key: String,
    name: Option<Name>,
    services: Vec<Name>,
    addresses: Vec<String>,
    issues_claims: bool,
}

impl GrantText {
    fn resolve(&self) -> Result<Grant, Failure> {
        let mut grant = Grant::new(self.role, resolve_node(&self.key)?);
        grant.issues_claims = self.issues_claims;
        grant.name = self.name;
        grant.services.clone_from(&self.services);
        grant.addresses.clone_from(&self.addresses);
        let service = Name::new(MATCHMAKER).map_err(Failure::usage)?;
        if self.role == Role::Matchmaker && !grant.services.contains(&service) {
            grant.services.push(service);
        }
        if self.role == Role::Hub && grant.addresses.is_empty() {
            return Err(Failure::usage(format_args!(
                "{}: a hub needs an address, as hub=KEY,address=HOST:PORT",
                self.key
            )));
        }
        Ok(grant)
    }
}

impl FromStr for GrantText {
    type Err = GrantTextError;

    fn from_str(text: &str) -> Result<Self, GrantTextError> {
        let (role, rest) = text.split_once('=').ok_or(GrantTextError::Form)?;
        let mut parts = rest.split(',');
        let mut grant = Self {
            role: role.parse().map_err(|_| GrantTextError::Role)?,
            key: parts.next().unwrap_or_default().to_owned(),
            name: None,
            services: Vec::new(),
            addresses: Vec::new(),
            issues_claims: false,
        };
        if grant.key.is_empty() {
            return Err(GrantTextError::Form);
        }
        for part in parts {
            let name = |text: &str| Name::new(text).map_err(|_| GrantTextError::Name);
            match part.split_once('=') {
                Some(("name", value)) => grant.name = Some(name(value)?),
                Some(("service", value)) => grant.services.push(name(value)?),
                Some(("issues", "claims")) => grant.issues_claims = true,
                Some(("address", value)) => {
                    check_address(value).map_err(GrantTextError::Address)?;
                    grant.addresses.push(value.to_owned());
                }
                Some(_) | None => return Err(GrantTextError::Option),
            }
        }
        Ok(grant)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrantTextError {
    Form,
    Role,
    Name,
    Option,
    Address(JoinFault),
}

impl fmt::Display for GrantTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address(fault) => return fault.fmt(f),
            Self::Form => "a grant is ROLE=KEY, with options behind commas",
            Self::Role => "the role is none of hub, game-node, matchmaker, mesh-node, stats, admin",
            Self::Name => "a name has 1 to 32 of a-z 0-9 . _ -",
            Self::Option => "an option is none of name=, service=, address=, issues=claims",
        })
    }
}

impl std::error::Error for GrantTextError {}
