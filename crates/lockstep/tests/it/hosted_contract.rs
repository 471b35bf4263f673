//! The machine contract of `wire::machine`, for players of a hosted match.

use lockstep::message::VERSION;
use lockstep::{HostedPeer, LeaveReason, PeerId, Phase, Step};
use netsim::contract::{ContractSubject, Limits, Reached, check_contract};
use netsim::test_site;
use wire::{Generator, Instant, Seed};

use crate::hosted_world::{HostedWorld, hosted};
use crate::mesh_world::{peer, peers};
use crate::world::{Link, MATCH, pad, seat};

struct Group;

const PLAYERS: u16 = 4;

impl ContractSubject for Group {
    type Machine = HostedPeer<u16>;

    fn build(&self, seed: Seed, now: Instant) -> Vec<HostedPeer<u16>> {
        let mut seeds = seed.generator(42);
        let config = hosted(PLAYERS, 1);
        let machine = |index: usize| {
            let own = (MATCH, seat(index));
            let peers = peers(index, PLAYERS.into());
            HostedPeer::new(config.clone(), own, &peers, seeds.seed(), now).unwrap()
        };
        (0..usize::from(PLAYERS)).map(machine).collect()
    }

    fn route(&self, sender: usize, destination: PeerId) -> Option<(usize, PeerId)> {
        let receiver = usize::try_from(destination.0.checked_sub(100)?).ok()?;
        (receiver < usize::from(PLAYERS)).then(|| (receiver, peer(sender)))
    }

    fn poke(
        &self,
        _: usize,
        machine: &mut HostedPeer<u16>,
        now: Instant,
        generator: &mut Generator,
    ) {
        let number = generator.below(400);
        let input = u16::try_from(generator.below(65_536)).unwrap();
        machine.submit(now, &input).ok();
        while let Step::Advance { turn, .. } = machine.next_step(now) {
            let tick = turn.tick();
            machine.report(tick, 7).unwrap();
        }
        match number {
            0 => machine.leave(now, LeaveReason::Quit),
            1 => machine.remove(now, seat(usize::from(input & 3))),
            2 if input < 9_000 => machine.finish(now),
            _ => {}
        }
    }

    fn unknown_peer(&self, _: usize, generator: &mut Generator) -> PeerId {
        PeerId(99 + generator.next_u32() % 6)
    }

    fn hostile(&self, index: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let low = generator.next_u32().to_be_bytes();
        let ours = 1 << index;
        // Messages that end the match for a player are rare, so that it runs for a while.
        Some(match generator.below(60) {
            // Presences, suspecting the host or not, mostly of the first view.
            6..20 => vec![0x50, VERSION, low[0] & low[1] & 1, 0, 0x0f, low[2] & 1],
            0 => vec![0x51],
            // Statements that suspect some players, sometimes the host.
            1 | 3..6 => {
                let suspects = (1 + low[0] % 14) & !ours;
                let mut datagram = vec![0x52, 0, 0, 0x0f, 0, suspects, 0, 0];
                for _ in 0..suspects.count_ones() {
                    datagram.extend_from_slice(&[0, 0, low[1], low[2]]);
                }
                datagram
            }
            // Decisions that exclude them.
            2 => {
                let next = (1 + low[0] % 14) | ours;
                let mut datagram = vec![0x53, 1, 0, 0x0f, 0, next, 0, 0];
                for _ in 0..(0x0f & !next).count_ones() {
                    datagram.extend_from_slice(&[0, 0, low[1], low[2]]);
                }
                datagram
            }
            20..30 => vec![0x54, 0, 0, 0, low[0]],
            30..40 => vec![0x55, 0, 0, 0, low[0], 0x20, 0x20],
            _ => vec![0x82, low[0], low[1], low[2], 0, low[3], 0x20, 0x20],
        })
    }

    fn memory(&self, machine: &HostedPeer<u16>) -> usize {
        machine.memory_len()
    }

    fn limits(&self) -> Limits {
        // A client's 1,024 bundles, hashes and ticks; a server's bundles, five columns of as many
        // hashes and four logs of 320 inputs; events.
        Limits::new(1_024 * (2 * (6 + 10) + 5 * 8 + 3 * 16) + 4 * 320 * 6 + 65_536)
    }

    fn observe(&self, machines: &[HostedPeer<u16>], reached: &mut Reached) {
        for machine in machines {
            let (stats, client) = (machine.stats(), machine.client().stats());
            for (point, count) in [
                ("turns are played", client.turns),
                ("a host takes over", stats.migrations),
                ("a host stands still", stats.holds),
                ("malformed is dropped", stats.dropped_malformed),
                ("an unknown peer's is dropped", stats.dropped_unknown_peer),
                ("a former host's is dropped", stats.dropped_stale),
                ("what is of no view is dropped", stats.dropped_view),
                ("one is over", (machine.phase() == Phase::Closed).into()),
                ("one left", (machine.members().count() < 4).into()),
            ] {
                reached.note(point, count);
            }
        }
    }
}

#[test]
fn sim_contract_hosted() {
    check_contract(&test_site!(), 30, &Group);
}

#[test]
fn ls_17_hosted_equal_seeds_give_equal_runs_byte_for_byte() {
    let transcript = |number| {
        let seed = Seed::from_number(number);
        let mut world = HostedWorld::new(seed, &hosted(4, 0), Link::lossy(5), pad);
        world.run_for(core::time::Duration::from_secs(2));
        world.players[0].is_paused = true;
        world.run_for(core::time::Duration::from_secs(4));
        let of = |player: &crate::hosted_world::HostedPlayer<u16>| {
            let stats = format!("{:?} {:?}", player.machine.stats(), player.events);
            (player.turned_at.clone(), player.states.clone(), stats)
        };
        world.players.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(transcript(1), transcript(1));
    assert_ne!(transcript(1), transcript(2));
}
