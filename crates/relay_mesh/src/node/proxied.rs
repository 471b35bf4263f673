//! Players behind proxies, which say before what they pass on whom it is from.

use core::net::{IpAddr, SocketAddr};

use crypto::Provider;
use wire::Instant;

use super::Node;
use crate::flow_message::FlowEnd;
use crate::leg::Leg;
use crate::proxy_header::{LEN_USUAL, Need, TrustedProxies, read_datagram};

/// A datagram at a game's port.
#[derive(Debug)]
pub(super) struct Said<'a> {
    /// The flow that it belongs to, where it is no new one.
    pub(super) flow: Option<u32>,
    /// Whom it is from.
    pub(super) player: SocketAddr,
    /// What he said.
    pub(super) datagram: &'a [u8],
}

impl<P: Provider> Node<P> {
    /// Takes the header off a datagram, where proxies stand before the game's port; `None` where what came
    /// is dropped.
    ///
    /// A proxy that writes a header each time has its port for another player when it says so. Of one that
    /// need not, what follows the first datagram of a flow is a player's own words, which name nobody else.
    pub(super) fn take_header<'a>(
        &mut self,
        now: Instant,
        (leg, game): (&Leg, usize),
        datagram: &'a [u8],
    ) -> Option<Said<'a>> {
        let flow = self.flows.of_player(leg);
        let game = self.config.games.get(game);
        let trusted = game.and_then(|game| self.config.proxies.get(&game.name));
        let Some(trusted) = trusted else {
            return Some(Said {
                flow,
                player: leg.address,
                datagram,
            });
        };
        let need = trusted.need();
        let Some((told, datagram)) = read(trusted, leg.address.ip(), datagram) else {
            self.stats.headers_refused = self.stats.headers_refused.saturating_add(1);
            return None;
        };
        let known = flow.and_then(|index| Some((index, self.flows.get(index)?.player)));
        let flow = match (known, told) {
            (Some((index, player)), Some(told)) if player != told => {
                if need == Need::Optional {
                    self.stats.headers_refused = self.stats.headers_refused.saturating_add(1);
                    return None;
                }
                self.close_flow(now, index, FlowEnd::Idle);
                None
            }
            _ => flow,
        };
        Some(Said {
            flow,
            player: told.unwrap_or(leg.address),
            datagram,
        })
    }
}

/// Whom `peer` speaks for, where it is not itself, and what is said; `None` where neither is believed.
fn read<'a>(
    trusted: &TrustedProxies,
    peer: IpAddr,
    datagram: &'a [u8],
) -> Option<(Option<SocketAddr>, &'a [u8])> {
    let header = read_datagram(datagram, LEN_USUAL).ok()?;
    let ends = trusted.judge(peer, header.as_ref()).ok()?;
    let said = header.map_or(Some(datagram), |header| datagram.get(header.len..))?;
    Some((ends.map(|ends| ends.source), said))
}
