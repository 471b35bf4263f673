//! Fields of records: numbers, names, addresses, keys and payloads.

use core::fmt;
use core::ops::Deref;
use core::str::FromStr;

use bytes::Bytes;
use wire::{ClientId, Encode, NodeId, Reader, Truncated, Writer};

/// Defines numbers. Each has its own type, so that they cannot be confused.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl Encode for $name {
            fn encode(&self, out: &mut Writer<'_>) {
                self.0.encode(out);
            }
        }
    )* };
}

numbers! {
    /// Number of a node's run: 1 for the first, then counting up.
    Epoch(u32);
    /// Identifies a log. Drawn at random when the log is created on an empty disk, and stored in it.
    ///
    /// Mail numbers are valid within one log only.
    LogId(u64);
    /// Position of a mail in the hub's log: increasing within each mailbox, with gaps. 0 is before
    /// the first mail.
    ///
    /// A client that persists the largest number it has processed, together with the [`LogId`],
    /// gets no mail twice: it passes the number with its next claim, or 0 if the log has changed.
    MailSeq(u64);
    /// The sender's number of a mail: 1 for the first of its run; unchanged when the mail is resent.
    SenderSeq(u64);
    /// Orders the claims of a player: later claims have larger leases, also across hub restarts.
    ///
    /// The upper half counts the hub's starts, which are persisted; the lower half the leases since.
    Lease(u64);
    /// The claiming node's number of a session. Records about a player carry it, so that those for
    /// an earlier session are ignored.
    ClaimNumber(u64);
    /// The calling node's number of a call.
    CallId(u64);
    /// The hub's number of a call, for the node that answers.
    RequestId(u64);
    /// The counting node's number of a batch: 1 for the first of its run.
    BatchSeq(u64);
    /// The querying node's number of a query of statistics.
    QueryId(u64);
    /// The sender's number of a live message: 1 for the first of its run.
    LiveSeq(u64);
    /// The node's number of a request to the key-value store: 1 for the first of its run.
    KvRequest(u64);
    /// The node's number of a watch: 1 for the first of its run.
    WatchId(u64);
    /// A group of players. The application chooses the number.
    GroupId(u64);
    /// The node's number of a request about a group: 1 for the first of its run.
    GroupRequest(u64);
}

impl SenderSeq {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl LiveSeq {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl GroupRequest {
    /// Returns the number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Lease {
    /// Sent by a node that has no lease yet.
    pub const NONE: Self = Self(0);

    /// Creates the `count`-th lease of the hub's `boot`-th start.
    #[must_use]
    pub fn new(boot: u32, count: u32) -> Self {
        Self((u64::from(boot) << 32) | u64::from(count))
    }

    pub(crate) fn boot(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for MailSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Role of a node. A key has the roles that the join file grants it, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The hub itself.
    Hub = 0,
    /// A game server.
    GameNode = 1,
    /// The matchmaker.
    Matchmaker = 2,
    /// A node of the relay mesh.
    MeshNode = 3,
    /// A statistics sink.
    Stats = 4,
    /// An administration tool.
    Admin = 5,
}

impl Role {
    /// All roles, ordered by code.
    pub const ALL: [Self; 6] = [
        Self::Hub,
        Self::GameNode,
        Self::Matchmaker,
        Self::MeshNode,
        Self::Stats,
        Self::Admin,
    ];

    /// Returns the name used in join files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::GameNode => "game-node",
            Self::Matchmaker => "matchmaker",
            Self::MeshNode => "mesh-node",
            Self::Stats => "stats",
            Self::Admin => "admin",
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let code = reader.u8()?;
        let role = Self::ALL.into_iter().find(|role| *role as u8 == code);
        role.ok_or(DecodeError::Choice(code))
    }
}

impl Encode for Role {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(*self as u8);
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or(RoleError)
    }
}

/// The text is not the name of a [`Role`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleError;

impl fmt::Display for RoleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("role is none of hub, game-node, matchmaker, mesh-node, stats, admin")
    }
}

impl core::error::Error for RoleError {}

/// Name of a service, topic or counter: 1 to 32 of the characters `a-z`, `0-9`, `.`, `_` and `-`.
///
/// Encoding: one length byte, then the characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    bytes: [u8; Self::LEN_MAX],
    /// Length, at least 1.
    len: u8,
}

impl Name {
    /// Longest name, bytes.
    pub const LEN_MAX: usize = 32;

    /// Parses `text`.
    ///
    /// # Errors
    ///
    /// [`NameError`] if the length or a character is invalid.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::from_bytes(text.as_bytes())
    }

    /// Returns the characters.
    pub fn as_str(&self) -> &str {
        // A name is always ASCII, so this never falls back.
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn from_bytes(text: &[u8]) -> Result<Self, NameError> {
        let mut bytes = [0; Self::LEN_MAX];
        let len = u8::try_from(text.len()).map_err(|_| NameError::Length(text.len()))?;
        let Some(target) = bytes.get_mut(..text.len()).filter(|_| len > 0) else {
            return Err(NameError::Length(text.len()));
        };
        target.copy_from_slice(text);
        let is_allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        if text.iter().copied().all(is_allowed) {
            Ok(Self { bytes, len })
        } else {
            Err(NameError::Character)
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = reader.u8()?;
        Self::from_bytes(reader.bytes(usize::from(len))?).map_err(|_| DecodeError::Name)
    }
}

impl Encode for Name {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.len);
        out.bytes(self.as_bytes());
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// Why a text is not a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// Its length in bytes; 1 to 32 are allowed.
    Length(usize),
    /// A character is not allowed.
    Character,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "name has {len} bytes where 1 to 32 are allowed"),
            Self::Character => f.write_str("name holds a character outside a-z 0-9 . _ -"),
        }
    }
}

impl core::error::Error for NameError {}

/// Address of a message.
///
/// Encoding: one byte for the kind, then 8 bytes, 32 bytes or a [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Addr {
    /// The node that holds the player's claim; for mail, the player's mailbox.
    Player(ClientId),
    /// One node.
    Node(NodeId),
    /// The node with the fewest open calls among those that provide this service.
    Service(Name),
    /// All nodes but the sender.
    Topic(Name),
    /// For mail, the mailboxes of the group's members.
    Group(GroupId),
}

impl Addr {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Player(ClientId(reader.u64()?))),
            1 => Ok(Self::Node(NodeId(reader.array()?))),
            2 => Ok(Self::Service(Name::decode(reader)?)),
            3 => Ok(Self::Topic(Name::decode(reader)?)),
            4 => Ok(Self::Group(GroupId(reader.u64()?))),
            code => Err(DecodeError::Addr(code)),
        }
    }
}

impl Encode for Addr {
    fn encode(&self, out: &mut Writer<'_>) {
        let (kind, address): (u8, &dyn Encode) = match self {
            Self::Player(player) => (0, player),
            Self::Node(node) => (1, node),
            Self::Service(name) => (2, name),
            Self::Topic(name) => (3, name),
            Self::Group(group) => (4, group),
        };
        out.fields(&[&kind, address]);
    }
}

/// Key of a counter: a name and up to 8 dimensions.
///
/// Encoding: the name, one byte with the number of dimensions, then each dimension's name and
/// value, ordered by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    name: Name,
    /// Sorted, names unique.
    dimensions: Vec<(Name, Name)>,
}

impl CountKey {
    /// Largest number of dimensions.
    pub const DIMENSIONS_MAX: usize = 8;

    /// Creates a key; the order of `dimensions` does not matter.
    ///
    /// # Errors
    ///
    /// [`CountKeyError`] if there are more than 8, or two have the same name.
    pub fn new(name: Name, dimensions: &[(Name, Name)]) -> Result<Self, CountKeyError> {
        if dimensions.len() > Self::DIMENSIONS_MAX {
            return Err(CountKeyError::TooMany(dimensions.len()));
        }
        let mut dimensions = dimensions.to_vec();
        dimensions.sort_unstable();
        if !is_ordered(&dimensions) {
            return Err(CountKeyError::Repeated);
        }
        Ok(Self { name, dimensions })
    }

    /// Returns what happened.
    pub const fn name(&self) -> Name {
        self.name
    }

    /// Returns the dimensions, sorted by name.
    pub fn dimensions(&self) -> &[(Name, Name)] {
        &self.dimensions
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let name = Name::decode(reader)?;
        let dimensions = decode_list(reader, Self::DIMENSIONS_MAX, |reader| {
            Ok((Name::decode(reader)?, Name::decode(reader)?))
        })?;
        if is_ordered(&dimensions) {
            Ok(Self { name, dimensions })
        } else {
            Err(DecodeError::Count)
        }
    }
}

impl Encode for CountKey {
    fn encode(&self, out: &mut Writer<'_>) {
        self.name.encode(out);
        encode_list(&self.dimensions, out, |(name, value), out| {
            out.fields(&[name, value]);
        });
    }
}

impl From<Name> for CountKey {
    fn from(name: Name) -> Self {
        Self {
            name,
            dimensions: Vec::new(),
        }
    }
}

/// Why a [`CountKey`] is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountKeyError {
    /// This many dimensions; 8 are allowed.
    TooMany(usize),
    /// Two dimensions have the same name.
    Repeated,
}

impl fmt::Display for CountKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(count) => write!(f, "{count} dimensions where 8 are allowed"),
            Self::Repeated => f.write_str("two dimensions of one name"),
        }
    }
}

impl core::error::Error for CountKeyError {}

fn is_ordered(dimensions: &[(Name, Name)]) -> bool {
    dimensions.is_sorted_by(|(before, _), (after, _)| before < after)
}

/// A payload (mail, or a key that travels in a call) that `Debug` prints as its length only.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Redacted<B>(pub B);

impl<B: AsRef<[u8]>> fmt::Debug for Redacted<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.as_ref().len())
    }
}

impl<B: AsRef<[u8]>> Encode for Redacted<B> {
    fn encode(&self, out: &mut Writer<'_>) {
        out.bytes(self.0.as_ref());
    }
}

impl<'a> Redacted<&'a [u8]> {
    /// Reads the rest of a record.
    pub(crate) const fn decode(
        reader: &mut Reader<'a>,
        bytes_max: usize,
    ) -> Result<Self, DecodeError> {
        let bytes = reader.take_rest();
        if bytes.len() > bytes_max {
            return Err(DecodeError::Count);
        }
        Ok(Self(bytes))
    }

    pub(crate) fn to_bytes(self) -> Redacted<Bytes> {
        Redacted(Bytes::copy_from_slice(self.0))
    }
}

impl<B> Deref for Redacted<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.0
    }
}

impl<B> From<B> for Redacted<B> {
    fn from(bytes: B) -> Self {
        Self(bytes)
    }
}

/// Reads a count in 1 byte, at most `max`, and as many items.
pub(crate) fn decode_list<'a, T>(
    reader: &mut Reader<'a>,
    max: usize,
    decode: impl Fn(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = usize::from(reader.u8()?);
    if count > max {
        return Err(DecodeError::Count);
    }
    (0..count).map(|_| decode(reader)).collect()
}

/// Appends the count of `items` in 1 byte, and each item; the caller bounds the count.
pub(crate) fn encode_list<T>(
    items: &[T],
    out: &mut Writer<'_>,
    encode: impl Fn(&T, &mut Writer<'_>),
) {
    out.u8(u8::try_from(items.len()).unwrap_or(u8::MAX));
    for item in items {
        encode(item, out);
    }
}

/// Why bytes do not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The record ends before its last field.
    Truncated,
    /// This many bytes follow the last field.
    Trailing(usize),
    /// The code is unknown in this direction.
    Code(u8),
    /// The address kind is unknown.
    Addr(u8),
    /// A name is empty, too long, or has an invalid character.
    Name,
    /// The value of an enum field is unknown.
    Choice(u8),
    /// A list or body is too long, or a list is not sorted.
    Count,
}

impl From<Truncated> for DecodeError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("fewer bytes than the fields need"),
            Self::Trailing(len) => write!(f, "{len} bytes behind the last field"),
            Self::Code(code) => write!(f, "no record has code {code}"),
            Self::Addr(code) => write!(f, "no address has code {code}"),
            Self::Name => f.write_str("a name that is none"),
            Self::Choice(code) => write!(f, "{code} stands for no choice"),
            Self::Count => f.write_str("a list or body over its limit, or out of order"),
        }
    }
}

impl core::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_32_characters() {
        assert_eq!(Name::new(""), Err(NameError::Length(0)));
        assert_eq!(Name::new(&"a".repeat(33)), Err(NameError::Length(33)));
        assert_eq!(Name::new(&"a".repeat(300)), Err(NameError::Length(300)));
        assert_eq!(Name::new(&"a".repeat(32)).unwrap().as_str().len(), 32);
        assert_eq!(Name::new("Shop"), Err(NameError::Character));
        assert_eq!(
            Name::new("match-maker.2").unwrap().to_string(),
            "match-maker.2"
        );
    }

    #[test]
    fn a_lease_of_a_later_start_is_larger() {
        assert!(Lease::new(2, 0) > Lease::new(1, u32::MAX));
        assert!(Lease::new(1, 1) > Lease::NONE);
    }

    #[test]
    fn every_role_is_read_as_it_is_written() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
            assert_eq!(Role::decode(&mut Reader::new(&[role as u8])), Ok(role));
        }
        assert_eq!("root".parse::<Role>(), Err(RoleError));
        let unknown = Role::decode(&mut Reader::new(&[6]));
        assert_eq!(unknown, Err(DecodeError::Choice(6)));
    }
}
