//! Seeded meshes of many nodes.

use relay_mesh::cost::Cost;
use relay_mesh::routes::{Graph, NodeIndex};
use wire::{Generator, NodeId, Seed};

/// Creates a full mesh of `len` nodes which may all relay.
///
/// They lie in a plane with a width of 150 ms. Link delays are inflated as in the Internet: mostly
/// by up to 1.6, one in ten by up to 4.
#[must_use]
pub fn draw(seed: u64, len: usize) -> Graph {
    let mut generator = Seed::from_number(seed).generator(0);
    let places: Vec<[u64; 2]> = (0..len)
        .map(|_| [0, 1].map(|_| generator.below(1_500)))
        .collect();
    let ids = (0..len).map(|number| {
        let mut id = [0; 32];
        let (start, _) = id.split_at_mut(8);
        start.copy_from_slice(&u64::try_from(number).unwrap_or(u64::MAX).to_be_bytes());
        (NodeId(id), true)
    });
    let mut graph = Graph::new(ids);
    let indices = indices(&graph);
    for (place, &[x, y]) in places.iter().enumerate() {
        for (other, &[other_x, other_y]) in places.iter().take(place).enumerate() {
            let (dx, dy) = (x.abs_diff(other_x), y.abs_diff(other_y));
            let cost = inflate(&mut generator, (dx * dx + dy * dy).isqrt());
            let ends = (indices.get(place).copied(), indices.get(other).copied());
            if let (Some(a), Some(b)) = ends {
                graph.set_link(a, b, cost);
            }
        }
    }
    graph
}

fn inflate(generator: &mut Generator, distance: u64) -> Cost {
    let worst = if generator.chance(100_000) { 400 } else { 160 };
    let units = distance * generator.between(100, worst) / 100 + 10;
    Cost::from_units(u16::try_from(units).unwrap_or(u16::MAX))
}

/// Returns the indices of all nodes in order.
#[must_use]
pub fn indices(graph: &Graph) -> Vec<NodeIndex> {
    let nodes = graph.nodes().iter();
    nodes.filter_map(|id| graph.index(id)).collect()
}
