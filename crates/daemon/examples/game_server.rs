//! A game server that the matchmaker starts. It sends back what players say.

use core::time::Duration;
use std::error::Error;
use std::io::Read;

use crypto::{AddressList, Ring, ServerKeys, TokenKey};
use daemon::allocator::SlotEnvironment;
use daemon::link::{GameLink, GameServer, LeaseConfig, LeaseEnd, LinkOptions, Offer};
use daemon::trust;
use matchmaker_core::record::{Assign, Verdict};
use tickwire::{AppId, Config, Event, HZ_60, Server};
use udp_proto::{Listen, Proof};

/// As `--app-id` of the matchmaker.
const APP: AppId = AppId(1);

/// Handles the matchmaker's calls, on the link's thread.
struct Game;

impl GameServer for Game {
    fn on_assigned(&mut self, _assign: &Assign) -> Verdict {
        // A game reserves the seats here, and rejects a match that does not fit.
        Verdict::Taken
    }

    fn on_cut_off(&mut self) {
        // A game admits no players until `on_registered`.
    }

    // Optional: `on_token_key` and `on_token_key_lapsed`, which rotate the key daily.

    fn on_ended(&mut self, _end: LeaseEnd) {
        // The loop below sees it too.
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let slot = SlotEnvironment::read()?;
    // The matchmaker keeps stdin open: when it closes, the process must exit.
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(0);
    });

    let identity = trust::read_identity(&slot.identity)?;
    let keys = ServerKeys::new(&[*identity.public_key()]).ok_or("no key")?;
    // The server draws its instance id; tokens are valid for this one only.
    let mut server = Server::bind_with(slot.listen, APP, Config::for_server(), |instance| {
        Listen::new(identity, instance)
    })?;
    let token_key = TokenKey::generate(&mut Ring::new(), 1)?;
    server.add_token_key(token_key.clone());

    let link = GameLink::start(
        LinkOptions {
            identity: &trust::read_identity(&slot.identity)?,
            join_file: &trust::read_join_file(&slot.join_file)?,
            instance: server.instance(),
            offer: Offer {
                app_id: APP.0,
                capacity: 16,
                identity_keys: keys,
                addresses: AddressList::new(&[slot.listen])?,
            },
            token_key,
            config: LeaseConfig::default(),
        },
        Game,
    )?;
    loop {
        if let Some(end) = link.wait_end(Duration::ZERO) {
            return Err(end.to_string().into());
        }
        for event in server.wait_tick(HZ_60)? {
            if let Event::Connected { peer, .. } = &event
                && let Proof::Token(grant) = &peer.proof
            {
                link.entered(grant.match_id)?;
            }
            if let Event::Message {
                session,
                channel,
                bytes,
            } = event
                && server.send(session, channel, &bytes).is_err()
            {
                server.disconnect(session).ok();
            }
            // When a match is over: `link.finished(match_id, result)`.
        }
    }
}
