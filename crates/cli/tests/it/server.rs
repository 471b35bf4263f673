//! A game server without a game: its link, and its token keys.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};

use crypto::token::{Audience, ConnectToken, TokenError};
use crypto::{AddressList, ClientGrant, Provider, Ring, ServerKeys, TokenKey};
use daemon::link::{GameLink, GameServer, LeaseConfig, LeaseEnd, LinkOptions, Offer};
use matchmaker_core::record::{Assign, Verdict};
use servicer::Clock;
use wire::{InstanceId, MatchId};

use crate::net::{APP, Net, PATIENCE};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerObservation {
    Registered,
    Assigned(Assign),
    Released(MatchId),
    CutOff,
    TokenKey(u32),
    Ended(LeaseEnd),
}

pub(crate) struct Server {
    pub(crate) link: GameLink,
    pub(crate) instance: InstanceId,
    pub(crate) key: TokenKey,
    incoming: Receiver<ServerObservation>,
    /// Keys created by the link, oldest first.
    pub(crate) keys: Arc<Mutex<Vec<TokenKey>>>,
    /// Events received while waiting for others, by kind.
    pub(crate) matches: BTreeMap<MatchId, Assign>,
}

impl Server {
    pub(crate) fn start(net: &Net, name: &str) -> Self {
        Self::start_with(net, name, LeaseConfig::default())
    }

    pub(crate) fn start_with(net: &Net, name: &str, config: LeaseConfig) -> Self {
        let identity = net.identity(name);
        let mut ring = Ring::new();
        let key = TokenKey::generate(&mut ring, 1).unwrap();
        let instance = instance(&mut ring);
        let (sender, incoming) = mpsc::sync_channel(1_024);
        let keys = Arc::new(Mutex::new(Vec::new()));
        let link = GameLink::start(
            LinkOptions {
                identity: &identity,
                join_file: &net.join_file(),
                instance,
                offer: Offer {
                    app_id: APP,
                    capacity: 4,
                    identity_keys: ServerKeys::new(&[*identity.public_key()]).unwrap(),
                    addresses: AddressList::new(&["127.0.0.1:4433".parse().unwrap()]).unwrap(),
                },
                token_key: key.clone(),
                config,
            },
            Listener {
                incoming: sender,
                keys: Arc::clone(&keys),
            },
        )
        .unwrap();
        Self {
            link,
            instance,
            key,
            incoming,
            keys,
            matches: BTreeMap::new(),
        }
    }

    pub(crate) fn next(&mut self) -> ServerObservation {
        let incoming = self.incoming.recv_timeout(PATIENCE).unwrap();
        if let ServerObservation::Assigned(assign) = &incoming {
            self.matches.insert(assign.match_id, assign.clone());
        }
        incoming
    }

    /// Handles events until `wanted` arrives.
    pub(crate) fn wait_for(&mut self, wanted: &ServerObservation) {
        while self.next() != *wanted {}
    }

    pub(crate) fn next_match(&mut self) -> Assign {
        loop {
            if let ServerObservation::Assigned(assign) = self.next() {
                return assign;
            }
        }
    }

    /// Opens the token of a grant, like a game server's endpoint.
    pub(crate) fn open(&self, grant: &str) -> Result<ConnectToken, TokenError> {
        open(&self.key, self.instance, grant)
    }
}

pub(crate) fn open(
    key: &TokenKey,
    server_id: InstanceId,
    grant: &str,
) -> Result<ConnectToken, TokenError> {
    let grant = ClientGrant::from_text(grant).unwrap();
    let audience = Audience {
        app_id: APP,
        server_id,
    };
    let now = Clock::new().unix_time();
    key.open(&Ring::new(), audience, now, grant.token.as_bytes())
}

pub(crate) fn instance(ring: &mut Ring) -> InstanceId {
    let mut id = [0; 8];
    ring.random(&mut id).unwrap();
    InstanceId(u64::from_be_bytes(id))
}

pub(crate) struct Listener {
    pub(crate) incoming: SyncSender<ServerObservation>,
    /// Keys created by the link.
    pub(crate) keys: Arc<Mutex<Vec<TokenKey>>>,
}

impl Listener {
    fn report(&self, incoming: ServerObservation) {
        self.incoming.try_send(incoming).ok();
    }
}

impl GameServer for Listener {
    fn on_assigned(&mut self, assign: &Assign) -> Verdict {
        self.report(ServerObservation::Assigned(assign.clone()));
        Verdict::Taken
    }

    fn on_released(&mut self, match_id: MatchId) {
        self.report(ServerObservation::Released(match_id));
    }

    fn on_registered(&mut self) {
        self.report(ServerObservation::Registered);
    }

    fn on_token_key(&mut self, key: &TokenKey) -> bool {
        self.keys.lock().unwrap().push(key.clone());
        self.report(ServerObservation::TokenKey(key.id()));
        true
    }

    fn on_cut_off(&mut self) {
        self.report(ServerObservation::CutOff);
    }

    fn on_ended(&mut self, end: LeaseEnd) {
        self.report(ServerObservation::Ended(end));
    }
}
