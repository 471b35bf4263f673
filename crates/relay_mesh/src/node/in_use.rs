//! Links in use.

use crypto::Provider;

use super::Node;
use crate::link::LinkSet;

impl<P: Provider> Node<P> {
    /// Returns the links that carry frames of flows, or are about to.
    pub(super) fn links_in_use(&self) -> LinkSet {
        let mut used = self.links_held();
        for (far, path_set) in &self.path_sets {
            used.insert(*far);
            for path in &path_set.paths {
                used.insert(path.first);
                let relays = path.path.relays.iter();
                used.extend(relays.filter_map(|relay| self.peers.find(relay)));
            }
        }
        for (link, _) in self.peers.iter() {
            if self.flows.with(link).next().is_some() {
                used.insert(link);
            }
        }
        used
    }
}
