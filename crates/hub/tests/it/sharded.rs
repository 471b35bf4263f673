//! Several hubs that share the players of one network.

mod behaviour;
mod hostile;
mod net;
mod sim;
mod vectors;
