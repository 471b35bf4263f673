//! The machine contract of `wire::machine`, for peers of a mesh.

use lockstep::{MeshPeer, PeerId, Phase, Step};
use netsim::contract::{ContractSubject, Limits, Reached, check_contract};
use netsim::test_site;
use wire::{Generator, Instant, Seed};

use crate::mesh_world::{MeshWorld, mesh, peer, peers};
use crate::world::{Link, MATCH, pad, seat};

struct Group;

const PEERS: u16 = 3;

impl ContractSubject for Group {
    type Machine = MeshPeer<u16>;

    fn build(&self, seed: Seed, now: Instant) -> Vec<MeshPeer<u16>> {
        let mut seeds = seed.generator(41);
        let mut config = mesh(PEERS);
        config.window = 4;
        let machine = |index: usize| {
            let own = (MATCH, seat(index));
            let peers = peers(index, PEERS.into());
            MeshPeer::new(config.clone(), own, &peers, seeds.seed(), now).unwrap()
        };
        (0..usize::from(PEERS)).map(machine).collect()
    }

    fn route(&self, sender: usize, destination: PeerId) -> Option<(usize, PeerId)> {
        let receiver = usize::try_from(destination.0.checked_sub(100)?).ok()?;
        (receiver < usize::from(PEERS)).then(|| (receiver, peer(sender)))
    }

    fn poke(&self, _: usize, machine: &mut MeshPeer<u16>, now: Instant, generator: &mut Generator) {
        let number = generator.below(300);
        let input = u16::try_from(generator.below(65_536)).unwrap();
        machine.submit(now, &input).ok();
        loop {
            match machine.next_step(now) {
                Step::Wait { .. } => break,
                Step::Save(_) | Step::Load(_) | Step::Advance { is_last: false, .. } => {}
                Step::Settled(tick) => machine.report(tick, 7).unwrap(),
                Step::Advance { turn, .. } => {
                    let tick = turn.tick();
                    machine.report(tick, 7).unwrap();
                }
            }
        }
        match number {
            0 => machine.leave(now),
            1..4 => machine.set_input_delay(now, u8::try_from(generator.below(20)).unwrap()),
            4 => machine.remove(now, seat(usize::from(input & 1))),
            _ => {}
        }
    }

    fn unknown_peer(&self, _: usize, generator: &mut Generator) -> PeerId {
        PeerId(99 + generator.next_u32() % 5)
    }

    fn hostile(&self, _: usize, generator: &mut Generator) -> Option<Vec<u8>> {
        let low = generator.next_u32().to_be_bytes();
        Some(match generator.below(6) {
            // Inputs of two unchanged ticks at random positions, and a request for a hash.
            0..3 => vec![
                0x41, 0x40, low[0], low[1], low[2], low[3], 0, 0, 1, low[1], low[2], low[2],
                low[3], 0x20, 0x20,
            ],
            // All peers but one are suspected; the others hold everything.
            3 => {
                let mut datagram = vec![0x43, 0, 7, 0, 1 + low[0] % 6, 0, 0];
                datagram.extend_from_slice(&[0xff; 12]);
                let kept = 7 & !(1 + low[0] % 6);
                datagram.truncate(19 - 4 * usize::try_from(kept.count_ones()).unwrap());
                datagram
            }
            4 => vec![0x45, low[0] % 3, 0, 0, 0, low[1]],
            _ => vec![0x46, low[0] % 3, 0, 0, 0, low[1], 0x20, 0x20],
        })
    }

    fn memory(&self, machine: &MeshPeer<u16>) -> usize {
        machine.memory_len()
    }

    fn limits(&self) -> Limits {
        // For each seat 1,024 bundles and hashes, and predicted inputs; own hashes and times.
        Limits::new(3 * (1_024 * (4 + 6 + 8) + 128 * 6) + 1_024 * 16 + 24_576)
    }

    fn observe(&self, machines: &[MeshPeer<u16>], reached: &mut Reached) {
        for machine in machines {
            let stats = machine.stats();
            for (point, count) in [
                ("inputs are stamped", stats.inputs),
                ("hashes are compared", stats.hashes_compared),
                ("the clock stands", stats.holds),
                ("bundles come twice", stats.bundles_repeated),
                ("bundles come early", stats.bundles_early),
                ("a peer catches up", stats.catch_up_datagrams),
                ("malformed is dropped", stats.dropped_malformed),
                ("an unknown peer's is dropped", stats.dropped_unknown_peer),
                ("what is far off is dropped", stats.dropped_window),
                ("ticks are confirmed", machine.ticks_confirmed().into()),
                ("one is over", (machine.phase() == Phase::Closed).into()),
                ("one left", (machine.members().count() < 3).into()),
            ] {
                reached.note(point, count);
            }
        }
    }
}

#[test]
fn sim_contract_mesh() {
    check_contract(&test_site!(), 30, &Group);
}

#[test]
fn ls_17_mesh_equal_seeds_give_equal_runs_byte_for_byte() {
    let transcript = |number| {
        let seed = Seed::from_number(number);
        let mut world = MeshWorld::new(seed, &mesh(4), Link::lossy(5), pad);
        world.run(300);
        let of = |player: &crate::mesh_world::MeshPlayer<u16>| {
            let stats = format!("{:?} {:?}", player.machine.stats(), player.events);
            (player.stepped_at.clone(), player.states.clone(), stats)
        };
        world.players.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(transcript(1), transcript(1));
    assert_ne!(transcript(1), transcript(2));
}
