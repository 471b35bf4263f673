//! Builds the routing graph from records.

use std::collections::BTreeMap;

use wire::NodeId;

use super::{LinkStateTable, Roles, ShortId};
use crate::cost::{Cost, CostModel};
use crate::measure::LinkReport;
use crate::routes::{Graph, NodeIndex};

impl LinkStateTable {
    /// Builds the graph of all live nodes and links; `own` is what this node measures now.
    ///
    /// A link has the higher of both ends' delays and the higher of their losses. It exists only if
    /// both ends report it: nobody can invent a link to others, and one end suffices to remove it.
    /// This node's own links need no report from the other end while that is unknown: it answers
    /// probes. Routes may pass a node that claims the role of relay, is granted it, and is not
    /// draining.
    #[must_use]
    pub fn graph(&self, model: &CostModel, own: &BTreeMap<NodeId, LinkReport>) -> Graph {
        let live = self.entries.iter().filter(|(_, entry)| entry.is_live);
        let nodes = live.map(|(&id, entry)| {
            let is_leaving = entry.links.as_ref().is_some_and(|links| links.is_leaving);
            let granted = self.profile(&id).map_or(Roles::NONE, |(_, roles)| roles);
            (id, granted.contains(Roles::RELAY) && !is_leaving)
        });
        // An unknown neighbour can be reached, but routes do not pass it.
        let neighbours = own.keys().filter(|id| !self.is_live(id));
        let neighbours = neighbours.map(|&id| (id, false));
        let ourselves = (!self.is_live(&self.own())).then(|| (self.own(), false));
        let mut graph = Graph::new(nodes.chain(neighbours).chain(ourselves));
        for (id, entry) in self.entries.iter().filter(|(_, entry)| entry.is_live) {
            let Some(links) = entry.links.as_ref().filter(|_| *id != self.own()) else {
                continue;
            };
            for (short, report) in links.iter() {
                self.add_link(&mut graph, model, (id, report), short);
            }
        }
        for (id, &report) in own {
            // All are in the graph, unless it is full.
            self.relink_own(&mut graph, model, (id, report));
        }
        graph
    }

    /// Adds the link from `id` to `short` if the other end reports it too.
    fn add_link(
        &self,
        graph: &mut Graph,
        model: &CostModel,
        (id, report): (&NodeId, LinkReport),
        short: ShortId,
    ) {
        let Some((other, _)) = self.by_short(short) else {
            return;
        };
        // Each pair is visited once, from its lower end; this node's own links come from `own`.
        if other <= id || *other == self.own() {
            return;
        }
        let (Some(theirs), Some((a, b))) = (self.report(other, *id), indices(graph, id, other))
        else {
            return;
        };
        set_link(graph, model, (a, b), report.worse(theirs));
    }

    /// Sets a neighbour's link from current measurements; returns its index if it is in the graph.
    pub fn relink_own(
        &self,
        graph: &mut Graph,
        model: &CostModel,
        (id, report): (&NodeId, LinkReport),
    ) -> Option<NodeIndex> {
        let theirs = self.report(id, self.own()).unwrap_or(report);
        let (own, remote) = indices(graph, &self.own(), id)?;
        set_link(graph, model, (own, remote), report.worse(theirs));
        Some(remote)
    }

    /// Returns what `from` reports of its link to `to`; `None` if it is not live or reports none.
    #[must_use]
    pub fn report(&self, from: &NodeId, to: NodeId) -> Option<LinkReport> {
        let entry = self.entries.get(from).filter(|entry| entry.is_live)?;
        let links = entry.links.as_ref()?;
        links.report(ShortId::from(to))
    }

    pub(crate) fn is_live(&self, id: &NodeId) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.is_live)
    }
}

fn set_link(
    graph: &mut Graph,
    model: &CostModel,
    (a, b): (NodeIndex, NodeIndex),
    link: LinkReport,
) {
    if link.is_up() {
        let cost = link.delay.plus(model.loss(link.loss));
        graph.set_link(a, b, cost);
        graph.set_loss(a, b, link.loss);
    } else {
        graph.set_link(a, b, Cost::UNROUTABLE);
    }
}

fn indices(graph: &Graph, a: &NodeId, b: &NodeId) -> Option<(NodeIndex, NodeIndex)> {
    Some((graph.index(a)?, graph.index(b)?))
}

#[cfg(test)]
mod tests;
