//! Checks of a configuration before the node starts.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use relay_mesh::flow_message::GAME_NAME_MAX;
use relay_mesh::hop::ShardId;
use relay_mesh::link_state::Profile;
use relay_mesh::signed_config::Protocol;
use relay_mesh::tunnel::TunnelConfig;
use wire::address::{canonical, check_destination};

use super::{FileConfig, FileGame, FileRole};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The field, such as `games[1].server`.
    pub(super) field: String,
    pub(super) text: String,
}

impl Fault {
    pub(super) fn new(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            text: text.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}

impl FileConfig {
    /// Returns the first value with which a node could not work.
    pub(super) fn fault(&self) -> Option<Fault> {
        if self.roles.is_empty() {
            let text = "\"roles\" is empty; expected one or more of \"entry\", \"relay\", \"exit\"";
            return Some(Fault::new("roles", text));
        }
        self.name_fault()
            .or_else(|| self.address_fault())
            .or_else(|| self.game_faults())
            .or_else(|| self.repeated_listen())
            .or_else(|| self.proxies_fault())
            .or_else(|| self.probes_fault())
            .or_else(|| self.unproved_limits_fault())
            .or_else(|| self.signed_fault())
            .or_else(|| self.number_fault())
            .or_else(|| self.links_fault())
    }

    fn links_fault(&self) -> Option<Fault> {
        let is_built = cfg!(feature = "emulation");
        (!is_built && !self.links.is_empty()).then(|| {
            let text = format!(
                "found {}; expected none: this program is built without link emulation (cargo \
                 feature \"emulation\")",
                self.links.len()
            );
            Fault::new("links", text)
        })
    }

    fn number_fault(&self) -> Option<Fault> {
        if !(1..=ShardId::COUNT_MAX).contains(&self.shards) {
            let text = format!(
                "found {}; expected 1 to {}",
                self.shards,
                ShardId::COUNT_MAX
            );
            return Some(Fault::new("shards", text));
        }
        self.limits_fault()
    }

    /// Limits that exceed a machine, or with which a node carries nothing.
    fn limits_fault(&self) -> Option<Fault> {
        let limits = &self.limits;
        let has_tcp = self.games.iter().any(|game| game.protocol == Protocol::Tcp);
        let number = |found: Option<u32>| found.map(u64::from);
        let links = limits
            .links
            .map(|links| u64::try_from(links).unwrap_or(u64::MAX));
        let tcp_max = u64::from(TunnelConfig::PLAYERS_MAX);
        let fields = [
            ("flows", number(limits.flows), 1..=FLOWS_MAX),
            ("idle_secs", limits.idle_secs, 1..=DAY_SECS),
            ("links", links, 1..=LINKS_MAX),
            (
                "flow_bytes_per_second",
                number(limits.flow_bytes_per_second),
                RATE_MIN..=RATE_MAX,
            ),
            (
                "tcp_connections",
                number(limits.tcp_connections),
                u64::from(has_tcp)..=tcp_max,
            ),
            (
                "tcp_per_address",
                number(limits.tcp_per_address),
                1..=tcp_max,
            ),
            ("drain_secs", limits.drain_secs, 0..=DAY_SECS),
        ];
        fields.into_iter().find_map(|(field, found, range)| {
            let found = found.filter(|found| !range.contains(found))?;
            let (min, max) = range.into_inner();
            let text = format!("found {found}; expected {min} to {max}");
            Some(Fault::new(format!("limits.{field}"), text))
        })
    }

    fn name_fault(&self) -> Option<Fault> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_good =
            (1..=NAME_LEN_MAX).contains(&self.name.len()) && self.name.bytes().all(is_name);
        (!is_good).then(|| {
            let text = format!(
                "found {:?}; expected 1 to 32 of A-Z a-z 0-9 . _ -",
                self.name
            );
            Fault::new("name", text)
        })
    }

    fn address_fault(&self) -> Option<Fault> {
        if self.advertise.is_empty() && self.listen.ip().is_unspecified() {
            let text = format!(
                "other nodes cannot reach {}; set \"advertise\"",
                self.listen
            );
            return Some(Fault::new("listen", text));
        }
        if let Some(fault) = self.listen_fault() {
            return Some(fault);
        }
        let most = Profile::ADDRESSES_MAX;
        if let Some(more) = self.advertise.get(most) {
            let text = format!("found {more}, one too many; expected at most {most}");
            return Some(Fault::new(format!("advertise[{most}]"), text));
        }
        let advertised = self.advertise.iter().enumerate();
        let advertised =
            advertised.map(|(index, address)| (format!("advertise[{index}]"), address));
        let known = self.bootstrap.iter().enumerate();
        let known =
            known.map(|(index, known)| (format!("bootstrap[{index}].address"), &known.address));
        let (field, nowhere) = advertised
            .chain(known)
            .find(|(_, address)| is_nowhere(address))?;
        Some(Fault::new(
            field,
            format!("{nowhere} is not a reachable address"),
        ))
    }

    fn listen_fault(&self) -> Option<Fault> {
        let own = ("listen".to_owned(), &self.listen);
        let games = self.games.iter().enumerate();
        let of_games = games.flat_map(|(index, game)| {
            let field = move |position| format!("games[{index}].listen[{position}]");
            let listen = game.listen.iter().enumerate();
            listen.map(move |(position, address)| (field(position), address))
        });
        let is_wrong = |address: &SocketAddr| {
            let ip = canonical(*address).ip();
            ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST)
        };
        let mut all = core::iter::once(own).chain(of_games);
        let (field, wrong) = all.find(|(_, address)| is_wrong(address))?;
        let text = format!("found {wrong}; expected an address of this host, or 0.0.0.0 or [::]");
        Some(Fault::new(field, text))
    }

    fn signed_fault(&self) -> Option<Fault> {
        let signed = self.signed.as_ref();
        let (field, text) =
            if signed.is_some() && (!self.games.is_empty() || self.members.is_some()) {
                let field = if self.games.is_empty() {
                    "members"
                } else {
                    "games"
                };
                let text = "with \"signed\", \"games\" and \"members\" are the signed document's";
                (field, text)
            } else if signed.is_some_and(|signed| signed.listen.is_empty())
                && self.roles.contains(&FileRole::Entry)
            {
                let text = "\"signed\" of an entry has no \"listen\", so no player could connect";
                ("signed.listen", text)
            } else if self
                .admin
                .as_ref()
                .is_some_and(|admin| !admin.listen.ip().is_loopback())
            {
                let text = "\"admin\" has no TLS, so it requires a loopback address";
                ("admin.listen", text)
            } else {
                return None;
            };
        Some(Fault::new(field, text))
    }

    fn game_faults(&self) -> Option<Fault> {
        let mut names = BTreeSet::new();
        self.games.iter().enumerate().find_map(|(index, game)| {
            let (field, fault) = if names.insert((&game.name, game.protocol)) {
                self.game_fault(game)?
            } else {
                (".name", "is listed twice")
            };
            let text = format!("game {:?} {fault}", game.name);
            Some(Fault::new(format!("games[{index}]{field}"), text))
        })
    }

    fn repeated_listen(&self) -> Option<Fault> {
        self.games.iter().enumerate().find_map(|(index, game)| {
            let mut listed = BTreeSet::new();
            let mut is_repeated =
                |address: SocketAddr| address.port() != 0 && !listed.insert(canonical(address));
            let position = game
                .listen
                .iter()
                .position(|address| is_repeated(*address))?;
            let address = game.listen.get(position)?;
            let field = format!("games[{index}].listen[{position}]");
            let text = format!("game {:?} lists {address} twice in \"listen\"", game.name);
            Some(Fault::new(field, text))
        })
    }

    fn game_fault(&self, game: &FileGame) -> Option<(&'static str, &'static str)> {
        let is = |role| self.roles.contains(&role);
        Some(if game.name.is_empty() {
            (".name", "has no name")
        } else if game.name.len() > GAME_NAME_MAX {
            (".name", "has a name of more than 64 bytes")
        } else if game.listen.is_empty() && game.server.is_none() {
            let text = "has neither \"listen\", for an entry, nor \"server\", for an exit";
            ("", text)
        } else if game.listen.is_empty() != game.exits.is_empty() {
            let text = "has only one of \"listen\" and \"exits\", and an entry needs both";
            ("", text)
        } else if !game.listen.is_empty() && !is(FileRole::Entry) {
            (".listen", "has \"listen\", but this node is not an entry")
        } else if game.server.is_some() && !is(FileRole::Exit) {
            (".server", "has \"server\", but this node is not an exit")
        } else if game.server.as_ref().is_some_and(is_nowhere) {
            (
                ".server",
                "has a \"server\" that is not a reachable address",
            )
        } else if game.entries.is_some() && game.server.is_none() {
            (".entries", "has \"entries\" without \"server\"")
        } else {
            (".proxy_header", header_fault(game)?)
        })
    }
}

fn header_fault(game: &FileGame) -> Option<&'static str> {
    let header = game.proxy_header.as_ref()?;
    let fault = match game.protocol {
        Protocol::Udp => "uses UDP, which version 1 of \"proxy_header\" does not support",
        Protocol::Tcp => {
            "uses TCP, but its \"proxy_header\" is for datagrams, or is version 1 with extensions"
        }
    };
    header.is_incompatible_with(game.protocol).then_some(fault)
}

/// Highest number of flows; some gigabytes of memory.
const FLOWS_MAX: u64 = 1 << 20;
/// Highest number of neighbours; each has a session and is probed.
const LINKS_MAX: u64 = 4_096;
/// Lowest rate of a flow, bytes per second: one datagram of the longest size.
const RATE_MIN: u64 = 1_500;
/// Highest rate of a flow, bytes per second; 8 Gbit/s.
const RATE_MAX: u64 = 1 << 30;
const DAY_SECS: u64 = 86_400;
const NAME_LEN_MAX: usize = 32;

/// Whether no packet can be sent to `address`.
const fn is_nowhere(address: &SocketAddr) -> bool {
    check_destination(*address).is_err()
}
