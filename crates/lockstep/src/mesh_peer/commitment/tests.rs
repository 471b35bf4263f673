mod chain;
mod commitment;
