//! Arrays of arrow-rs, exported, encoded, packed as an IPC stream and read by arrow-rs.

mod bitmaps;
mod broken;
mod columns;
mod compression;
mod declared;
mod decoder;
mod dictionaries;
mod golden;
mod layout;
mod selection;
mod slices;
mod support;
