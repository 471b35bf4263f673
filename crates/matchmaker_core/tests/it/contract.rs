//! The machine contract, checked by netsim's generic test.

use core::time::Duration;

use matchmaker_core::record::{Intake, encode_bye, encode_heartbeat, encode_left, encode_result};
use matchmaker_core::{
    Caller, Command, Config, Game, Matchmaker, Outcome, Rule, ServerLink, TeamSize, TicketRequest,
};
use netsim::provider::SimProvider;
use netsim::{ContractSubject, Limits, Reached, check_contract, test_site};
use wire::{Arrival, ClientId, Generator, InstanceId, Instant, Machine, MatchId, Seed};

use crate::harness::{APP, Server};

#[test]
fn sim_contract() {
    check_contract(&test_site!(), 200, &Subject::new());
}

/// A matchmaker with a pool of two and a fleet of two. The script plays its servers.
struct Subject {
    servers: Vec<Server>,
}

impl Subject {
    fn new() -> Self {
        let servers = (0..8).map(|number| Server::run(number % 4, 6, number / 4));
        Self {
            servers: servers.collect(),
        }
    }

    fn server(&self, generator: &mut Generator) -> &Server {
        let index = generator.below(self.servers.len() as u64);
        &self.servers[usize::try_from(index).unwrap()]
    }
}

impl ContractSubject for Subject {
    type Machine = Matchmaker<SimProvider>;

    fn build(&self, seed: Seed, now: Instant) -> Vec<Self::Machine> {
        let node = |index: usize| self.servers[index].link.node;
        let game = Game {
            app_id: APP,
            rule: Rule::TeamSize(TeamSize::new(2, 1).unwrap()),
            slots: vec![node(0), node(1)],
            fleet: [node(2), node(3)].into(),
        };
        let provider = SimProvider::new(seed);
        vec![Matchmaker::new(config(), game, provider, now).unwrap()]
    }

    fn route(&self, _sender: usize, _destination: Caller) -> Option<(usize, Caller)> {
        None
    }

    fn poke(
        &self,
        _index: usize,
        machine: &mut Self::Machine,
        now: Instant,
        generator: &mut Generator,
    ) {
        let client = client(generator);
        match generator.below(6) {
            0..=2 => {
                machine.submit(now, &TicketRequest::new(client)).ok();
            }
            3 => {
                if let Some(ticket) = machine.ticket_of(client) {
                    machine.cancel(now, ticket).ok();
                    machine.reissue(now, ticket).ok();
                }
            }
            _ => {
                let server = self.server(generator);
                let caller = Caller {
                    link: server.link,
                    call: generator.next_u64(),
                };
                let mut body = record(server, generator);
                machine.handle_datagram(now, Arrival::from(caller), &mut body);
            }
        }
    }

    fn unknown_peer(&self, _index: usize, generator: &mut Generator) -> Caller {
        let mut link = self.server(generator).link;
        if generator.chance(300_000) {
            link = ServerLink {
                instance: InstanceId(generator.next_u64()),
                ..link
            };
        }
        Caller {
            link,
            call: generator.next_u64(),
        }
    }

    fn hostile(&self, _index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let server = self.server(generator);
        Some(record(server, generator))
    }

    fn outcome(&self, command: Option<&Command>, generator: &mut Generator) -> Option<Outcome> {
        Some(match (command, generator.below(4)) {
            (_, 0) => Outcome::Failed,
            (Some(Command::Spawn { .. }), _) => Outcome::Started,
            (Some(Command::Stop { .. }), _) => Outcome::Stopped,
            (Some(_) | None, _) => Outcome::Answered(vec![1, 0]),
        })
    }

    fn memory(&self, machine: &Self::Machine) -> usize {
        machine.memory_bytes()
    }

    fn limits(&self) -> Limits {
        // 64 waiting, 64 ended and 32 seated tickets of 3 KiB, 16 matches and their seats, 4
        // servers of 8 KiB, 200 timers, and 256 events, 64 replies and 40 commands of 4 KiB.
        let mut limits = Limits::new(160 * 3_072 + 48 * 512 + 4 * 8_192 + 200 * 192 + 360 * 4_096);
        limits.settle = Duration::from_secs(120);
        limits
    }

    fn observe(&self, machines: &[Self::Machine], reached: &mut Reached) {
        let stats = machines[0].stats();
        for (point, count) in [
            ("tickets are taken", stats.tickets),
            ("matches are made", stats.matches),
            ("tokens are minted", stats.tokens),
            ("matches dissolve", stats.dissolved),
            ("calls are refused", stats.calls_refused),
            ("a completion is stray", stats.completions_stray),
        ] {
            reached.note(point, count);
        }
    }

    fn stuck(&self, machines: &[Self::Machine]) -> Option<String> {
        let load = machines.first()?.load();
        (load.tickets_waiting > 0).then(|| format!("{load:?}"))
    }
}

fn record(server: &Server, generator: &mut Generator) -> Vec<u8> {
    let mut id = [0; 16];
    id[0] = u8::try_from(generator.below(4)).unwrap();
    let mut body = Vec::new();
    match generator.below(10) {
        0..=3 => return server.record().encode().unwrap().to_vec(),
        4..=6 => encode_heartbeat(Intake::Open, [(MatchId(id), true)].into_iter(), &mut body),
        7 => encode_result(MatchId(id), b"won", &mut body),
        8 => encode_left(MatchId(id), client(generator), &mut body),
        _ => encode_bye(&mut body),
    }
    body
}

fn client(generator: &mut Generator) -> ClientId {
    ClientId(generator.below(100))
}

fn config() -> Config {
    let mut config = Config::default();
    config.tickets_max = 64;
    config.ended_max = 64;
    config.matches_max = 16;
    config.servers_max = 4;
    config.events_max = 256;
    config.replies_max = 64;
    config.ticket_ttl = Duration::from_secs(20);
    config
}
