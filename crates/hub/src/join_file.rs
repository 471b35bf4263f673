//! The join file: which nodes may join in which role, and where the hub is.
//!
//! ```text
//! tickwire-join 1
//! # One secret for the network, made by `tickwire key`.
//! network-secret 64-hex-digits
//!
//! # role      node id         options
//! hub         64-hex-digits   name=hub-1 address=10.0.0.5:7400
//! game-node   64-hex-digits   name=eu-1
//! matchmaker  64-hex-digits   name=mm service=matchmaker
//! ```
//!
//! One line is one grant: the holder of the key with this hash may join in this role. A key that
//! has several roles has several lines. Several hubs share the load: the first is shard 0, see
//! [`Shard`]. Everything behind `#` is a remark. Options are `name=`
//! (one), `service=` (what it may serve), `address=` (hub and mesh nodes: where it listens) and
//! `issues=claims` (its signature proves which node may claim a player).

#[cfg(test)]
mod tests;

use core::fmt;
use core::fmt::Write as _;

use wire::{AddressError, NodeId, parse_address};
use zeroize::Zeroize;

use crate::field::{Name, Role};
use crate::record::SERVICES_MAX;
use crate::shard::{Shard, ShardView};

/// Which keys may join in which roles, and the hub's address.
#[derive(Debug)]
#[non_exhaustive]
pub struct JoinFile {
    /// Shared by all nodes; the mesh uses it as a pre-shared key.
    pub network_secret: NetworkSecret,
    /// The previous secret, valid during a rotation.
    pub previous_secret: Option<NetworkSecret>,
    /// In the file's order.
    pub grants: Vec<Grant>,
}

/// One line of a join file: a key may join in a role.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The role.
    pub role: Role,
    /// The node.
    pub node: NodeId,
    /// Display name.
    pub name: Option<Name>,
    /// Services that it may provide.
    pub services: Vec<Name>,
    /// Listening addresses, as `host:port`.
    pub addresses: Vec<String>,
    /// Whether its signature proves [claims](crate::ClaimGrant).
    pub issues_claims: bool,
}

/// 32 secret bytes of the network; wiped on drop, and never logged.
pub struct NetworkSecret([u8; 32]);

impl JoinFile {
    /// Longest file, bytes.
    pub const BYTES_MAX: usize = 1 << 20;
    /// Most grants.
    pub const GRANTS_MAX: usize = 4_096;
    /// Most hubs: each node has a link to every one.
    pub const HUBS_MAX: u8 = Shard::COUNT_MAX;
    /// Most addresses of one grant.
    pub const ADDRESSES_MAX: usize = 8;
    /// Longest address, bytes: a DNS name (RFC 1035, section 2.3.4), a colon and a port.
    pub const ADDRESS_BYTES_MAX: usize = 255 + 6;

    /// Creates a file without grants.
    #[must_use]
    pub const fn new(network_secret: NetworkSecret) -> Self {
        Self {
            network_secret,
            previous_secret: None,
            grants: Vec::new(),
        }
    }

    /// Parses a file.
    ///
    /// # Errors
    ///
    /// [`JoinFileError`] with the line and the fault; it contains no secret.
    pub fn parse(text: &str) -> Result<Self, JoinFileError> {
        if text.len() > Self::BYTES_MAX {
            return Err(JoinFileError::at(0, JoinFault::TooLong(text.len())));
        }
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let mut parser = Parser::default();
        for (number, line) in (1..).zip(text.lines()) {
            let content = line.split_once('#').map_or(line, |(content, _)| content);
            parser
                .line(content)
                .map_err(|fault| JoinFileError::at(number, fault))?;
        }
        parser.end().map_err(|fault| JoinFileError::at(0, fault))
    }

    /// Returns the file's text, including the secret: write it to the file only.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from("tickwire-join 1\n");
        write_secret(&mut text, "network-secret", &self.network_secret);
        if let Some(previous) = &self.previous_secret {
            write_secret(&mut text, "previous-secret", previous);
        }
        for grant in &self.grants {
            text.push_str(&grant.to_string());
            text.push('\n');
        }
        text
    }

    /// Returns the grant of `node` in `role`.
    pub fn grant(&self, node: NodeId, role: Role) -> Option<&Grant> {
        self.grants_of(node).find(|grant| grant.role == role)
    }

    /// Returns all grants of `node`.
    pub fn grants_of(&self, node: NodeId) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| grant.node == node)
    }

    /// Returns the grants of a role, for example the hub's.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| grant.role == role)
    }

    /// Returns the hubs. Their order is that of the [shards](crate::Shard).
    pub fn hubs(&self) -> impl Iterator<Item = &Grant> {
        self.with_role(Role::Hub)
    }

    /// Returns the part of the hub `node`; [`Shard::ONLY`] if the file does not list it as a hub, as for a
    /// hub of statistics.
    #[must_use]
    pub fn shard_of(&self, node: NodeId) -> Shard {
        let count = u8::try_from(self.hubs().count()).unwrap_or(u8::MAX);
        let index = self.hubs().position(|hub| hub.node == node);
        let index = index.and_then(|index| u8::try_from(index).ok());
        let shard = index.and_then(|index| Shard::new(index, count));
        shard.unwrap_or(Shard::ONLY)
    }

    /// Returns what a link to the hub with this part must agree about.
    #[must_use]
    pub fn view_of(&self, shard: Shard) -> ShardView {
        ShardView::new(shard, self.hubs().map(|hub| hub.node))
    }

    /// Returns the hubs that a node dials: all, or `only` one; `None` if one of them has no address, or
    /// there are too many.
    pub(crate) fn hubs_to_dial(&self, only: Option<u8>) -> Option<Vec<(Shard, &Grant)>> {
        let count = u8::try_from(self.hubs().count()).ok()?;
        let hubs = (0..count).zip(self.hubs());
        let hubs = hubs.filter(|(index, _)| only.is_none_or(|only| only == *index));
        let hubs = hubs.map(|(index, grant)| {
            let shard = Shard::new(index, count)?;
            (!grant.addresses.is_empty()).then_some((shard, grant))
        });
        let hubs: Vec<_> = hubs.collect::<Option<_>>()?;
        (!hubs.is_empty()).then_some(hubs)
    }
}

impl Grant {
    /// Creates a grant without options.
    #[must_use]
    pub const fn new(role: Role, node: NodeId) -> Self {
        Self {
            role,
            node,
            name: None,
            services: Vec::new(),
            addresses: Vec::new(),
            issues_claims: false,
        }
    }

    /// Lets its signature prove claims.
    #[must_use]
    pub const fn with_claims(mut self) -> Self {
        self.issues_claims = true;
        self
    }

    /// Sets the display name.
    #[must_use]
    pub const fn with_name(mut self, name: Name) -> Self {
        self.name = Some(name);
        self
    }

    /// Adds a service that it may provide.
    #[must_use]
    pub fn with_service(mut self, service: Name) -> Self {
        self.services.push(service);
        self
    }

    /// Adds a listening address, as `host:port`.
    #[must_use]
    pub fn with_address(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<10} {}", self.role, self.node)?;
        if let Some(name) = self.name {
            write!(f, " name={name}")?;
        }
        for service in &self.services {
            write!(f, " service={service}")?;
        }
        for address in &self.addresses {
            write!(f, " address={address}")?;
        }
        if self.issues_claims {
            f.write_str(" issues=claims")?;
        }
        Ok(())
    }
}

impl NetworkSecret {
    /// Wraps 32 random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for a key schedule.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for NetworkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NetworkSecret(..)")
    }
}

impl Drop for NetworkSecret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Why a join file is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinFileError {
    /// Line number from 1; 0 for the file as a whole.
    pub line: u32,
    /// The fault.
    pub fault: JoinFault,
}

impl JoinFileError {
    const fn at(line: u32, fault: JoinFault) -> Self {
        Self { line, fault }
    }
}

impl fmt::Display for JoinFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        self.fault.fmt(f)
    }
}

impl core::error::Error for JoinFileError {}

/// A fault in a join file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinFault {
    /// The file has this many bytes; 1 MiB is allowed.
    TooLong(usize),
    /// The file holds only blank lines and comments.
    Empty,
    /// The first line is not `tickwire-join 1`.
    Heading,
    /// A secret is not 64 hexadecimal digits.
    Secret,
    /// A secret is given twice.
    SecretTwice,
    /// The network secret is missing.
    SecretMissing,
    /// The line begins with neither a role nor a secret.
    Word,
    /// The second field is not a node id.
    NodeId,
    /// An unknown option; `name=`, `service=`, `address=` and `issues=claims` exist.
    Option,
    /// An invalid name or service, or a second name.
    Name,
    /// An address is not `host:port`.
    Address,
    /// The port is not a number from 1 to 65,535.
    Port,
    /// An IPv6 address without brackets.
    NoBrackets,
    /// Too many services or addresses for one key.
    TooManyOptions,
    /// More than 4,096 grants.
    TooManyGrants,
    /// More than 16 hubs.
    TooManyHubs,
    /// The key has this role already.
    GrantTwice,
}

impl fmt::Display for JoinFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong(len) => return write!(f, "{len} bytes where 1 MiB is allowed"),
            Self::Empty => "the file is empty; expected `tickwire-join 1` on its first line",
            Self::Heading => "expected `tickwire-join 1`, with which a join file begins",
            Self::Secret => "expected a secret of 64 hexadecimal digits, and nothing else",
            Self::SecretTwice => "this secret is given already",
            Self::SecretMissing => {
                "the line `network-secret` is missing; expected it with 64 hexadecimal digits"
            }
            Self::Word => {
                "expected network-secret, previous-secret, hub, game-node, matchmaker, mesh-node, \
                 stats or admin"
            }
            Self::NodeId => "expected a node id of 64 hexadecimal digits behind the role",
            Self::Option => {
                "expected name=, service=, address= or issues=claims behind the node id"
            }
            Self::Name => "a name has 1 to 32 of a-z 0-9 . _ - and is given once",
            Self::Address => {
                "address= expects HOST:PORT, like hub.example.org:7400, 192.0.2.7:7400 or \
                 [2001:db8::1]:7400"
            }
            Self::Port => "the port behind address= is not within 1 to 65535",
            Self::NoBrackets => {
                "an IPv6 address behind address= needs brackets, like [2001:db8::1]:7400"
            }
            Self::TooManyOptions => "over 16 services or 8 addresses",
            Self::TooManyGrants => "over 4096 grants",
            Self::TooManyHubs => "over 16 hubs",
            Self::GrantTwice => "this key has this role already",
        })
    }
}

#[derive(Default)]
struct Parser {
    headed: bool,
    secret: Option<NetworkSecret>,
    previous: Option<NetworkSecret>,
    grants: Vec<Grant>,
    seen: std::collections::BTreeSet<(NodeId, Role)>,
}

impl Parser {
    fn line(&mut self, content: &str) -> Result<(), JoinFault> {
        let mut words = content.split_ascii_whitespace();
        let Some(first) = words.next() else {
            return Ok(());
        };
        if !self.headed {
            self.headed = first == "tickwire-join" && words.eq(["1"]);
            return self.headed.then_some(()).ok_or(JoinFault::Heading);
        }
        match first {
            "network-secret" => put_secret(&mut self.secret, words),
            "previous-secret" => put_secret(&mut self.previous, words),
            role => self.grant(role.parse().map_err(|_| JoinFault::Word)?, words),
        }
    }

    fn grant<'a>(
        &mut self,
        role: Role,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<(), JoinFault> {
        let id = words.next().and_then(|word| word.parse().ok());
        let mut grant = Grant::new(role, id.ok_or(JoinFault::NodeId)?);
        for word in words {
            let (option, value) = word.split_once('=').ok_or(JoinFault::Option)?;
            match option {
                "name" if grant.name.is_none() => grant.name = Some(name(value)?),
                "name" => return Err(JoinFault::Name),
                "issues" if value == "claims" => grant.issues_claims = true,
                "service" => grant.services.push(name(value)?),
                "address" => {
                    check_address(value)?;
                    grant.addresses.push(value.to_owned());
                }
                _ => return Err(JoinFault::Option),
            }
            if grant.services.len() > SERVICES_MAX
                || grant.addresses.len() > JoinFile::ADDRESSES_MAX
            {
                return Err(JoinFault::TooManyOptions);
            }
        }
        if !self.seen.insert((grant.node, role)) {
            return Err(JoinFault::GrantTwice);
        }
        if self.grants.len() >= JoinFile::GRANTS_MAX {
            return Err(JoinFault::TooManyGrants);
        }
        if role == Role::Hub {
            let hubs = self.grants.iter().filter(|grant| grant.role == role);
            if hubs.count() >= usize::from(JoinFile::HUBS_MAX) {
                return Err(JoinFault::TooManyHubs);
            }
        }
        self.grants.push(grant);
        Ok(())
    }

    fn end(self) -> Result<JoinFile, JoinFault> {
        if !self.headed {
            return Err(JoinFault::Empty);
        }
        Ok(JoinFile {
            network_secret: self.secret.ok_or(JoinFault::SecretMissing)?,
            previous_secret: self.previous,
            grants: self.grants,
        })
    }
}

fn put_secret<'a>(
    place: &mut Option<NetworkSecret>,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<(), JoinFault> {
    // 64 hexadecimal digits parse as a node id; the copy is wiped.
    let Ok(NodeId(mut bytes)) = words.next().unwrap_or_default().parse() else {
        return Err(JoinFault::Secret);
    };
    let secret = NetworkSecret(bytes);
    bytes.zeroize();
    if words.next().is_some() {
        return Err(JoinFault::Secret);
    }
    if place.is_some() {
        return Err(JoinFault::SecretTwice);
    }
    *place = Some(secret);
    Ok(())
}

fn name(text: &str) -> Result<Name, JoinFault> {
    Name::new(text).map_err(|_| JoinFault::Name)
}

/// Checks a listening address: an IP address or host name, and a port.
///
/// # Errors
///
/// [`JoinFault::Address`], [`JoinFault::Port`] or [`JoinFault::NoBrackets`].
pub fn check_address(text: &str) -> Result<(), JoinFault> {
    if text.len() > JoinFile::ADDRESS_BYTES_MAX {
        return Err(JoinFault::Address);
    }
    match parse_address(text) {
        Ok(address) if address.port() == 0 => Err(JoinFault::Port),
        // A host name is resolved when it is used.
        Ok(_) | Err(AddressError::HostName) => Ok(()),
        Err(AddressError::Port) => Err(JoinFault::Port),
        Err(AddressError::NoBrackets) => Err(JoinFault::NoBrackets),
        Err(_) => Err(JoinFault::Address),
    }
}

fn write_secret(text: &mut String, word: &str, secret: &NetworkSecret) {
    text.push_str(word);
    text.push(' ');
    for byte in secret.0 {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").unwrap_or_default();
    }
    text.push('\n');
}
