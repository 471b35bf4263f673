//! What a configuration must not leave to be found out later.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use relay_mesh::signed_config::Protocol;

use super::{FileConfig, FileGame, FileProtocol, FileRole};

impl FileConfig {
    /// Says in one sentence why a node with this configuration could not do its work; `None` where
    /// it could.
    pub(super) fn fault(&self) -> Option<String> {
        if self.roles.is_empty() {
            return Some("\"roles\" is empty, and a node does something for others".to_owned());
        }
        self.address_fault()
            .or_else(|| self.game_faults())
            .or_else(|| self.proxies_fault())
            .or_else(|| self.probes_fault())
            .or_else(|| self.signed_fault().map(str::to_owned))
    }

    fn address_fault(&self) -> Option<String> {
        if self.advertise.is_empty() && self.listen.ip().is_unspecified() {
            return Some(format!(
                "others cannot reach {}; say in \"advertise\" where they can",
                self.listen
            ));
        }
        let known = self.bootstrap.iter().map(|known| &known.address);
        let nowhere = self
            .advertise
            .iter()
            .chain(known)
            .find(|address| is_nowhere(address))?;
        Some(format!("nobody can be reached at {nowhere}"))
    }

    fn signed_fault(&self) -> Option<&'static str> {
        let signed = self.signed.as_ref();
        if signed.is_some() && (!self.games.is_empty() || self.members.is_some()) {
            Some("\"games\" and \"members\" are the signed document's where there is \"signed\"")
        } else if signed.is_some_and(|signed| signed.listen.is_empty())
            && self.roles.contains(&FileRole::Entry)
        {
            Some("\"signed\" of an entry has no \"listen\", so that no player could come in")
        } else if self
            .admin
            .as_ref()
            .is_some_and(|admin| !admin.listen.ip().is_loopback())
        {
            Some("\"admin\" speaks without TLS, so on a loopback address only")
        } else {
            None
        }
    }

    fn game_faults(&self) -> Option<String> {
        let mut names = BTreeSet::new();
        self.games.iter().find_map(|game| {
            let fault = if names.insert((&game.name, game.protocol)) {
                self.game_fault(game)?
            } else {
                "stands there twice"
            };
            Some(format!("game {:?} {fault}", game.name))
        })
    }

    fn game_fault(&self, game: &FileGame) -> Option<&'static str> {
        let is = |role| self.roles.contains(&role);
        if game.name.is_empty() {
            Some("has no name")
        } else if game.listen.is_empty() && game.server.is_none() {
            Some("has neither \"listen\", for an entry, nor \"server\", for an exit")
        } else if game.listen.is_empty() != game.exits.is_empty() {
            Some("has only one of \"listen\" and \"exits\", and an entry needs both")
        } else if !game.listen.is_empty() && !is(FileRole::Entry) {
            Some("has \"listen\", and this node is no entry")
        } else if game.server.is_some() && !is(FileRole::Exit) {
            Some("has \"server\", and this node is no exit")
        } else if game.server.as_ref().is_some_and(is_nowhere) {
            Some("has a \"server\" that nobody can be reached at")
        } else if game.entries.is_some() && game.server.is_none() {
            Some("has \"entries\" without \"server\"")
        } else {
            header_fault(game)
        }
    }
}

fn header_fault(game: &FileGame) -> Option<&'static str> {
    let header = game.proxy_header.as_ref()?;
    let (protocol, fault) = match game.protocol {
        FileProtocol::Udp => (
            Protocol::Udp,
            "is of datagrams, which version 1 of \"proxy_header\" knows nothing of",
        ),
        FileProtocol::Tcp => (
            Protocol::Tcp,
            "is of connections, and its \"proxy_header\" of datagrams, or a line with extensions",
        ),
    };
    header.does_not_go_with(protocol).then_some(fault)
}

/// Whether no packet can be meant for `address`.
const fn is_nowhere(address: &SocketAddr) -> bool {
    let ip = address.ip();
    ip.is_unspecified() || ip.is_multicast() || address.port() == 0
}
