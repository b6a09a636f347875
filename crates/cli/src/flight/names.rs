//! The names of tables in the calls of Flight: descriptors.

use arrow_flight::FlightDescriptor;
use arrow_flight::flight_descriptor::DescriptorType;
use tonic::Status;

/// The ticket of a descriptor: a path of one part, or a command, unchanged.
pub fn ticket_of(descriptor: &FlightDescriptor) -> Result<Vec<u8>, Status> {
    match (
        DescriptorType::try_from(descriptor.r#type),
        descriptor.path.as_slice(),
    ) {
        (Ok(DescriptorType::Path), [name]) => Ok(name.as_bytes().to_vec()),
        (Ok(DescriptorType::Path), path) => Err(Status::not_found(format!(
            "the path {path:?} has {} parts; the path of a table here is its name alone",
            path.len()
        ))),
        (Ok(DescriptorType::Cmd), _) => Ok(descriptor.cmd.to_vec()),
        _ => Err(Status::invalid_argument(
            "the descriptor is neither a path nor a command",
        )),
    }
}

/// The descriptor of a name: a command, or a path of one part.
pub fn descriptor(name: &str, is_command: bool) -> FlightDescriptor {
    match is_command {
        true => FlightDescriptor::new_cmd(name.to_owned()),
        false => FlightDescriptor::new_path(vec![name.to_owned()]),
    }
}

/// The descriptor under which a table is listed. A path must be text; a ticket need not be.
pub fn descriptor_of(ticket: &[u8]) -> FlightDescriptor {
    match std::str::from_utf8(ticket) {
        Ok(name) => descriptor(name, false),
        Err(_) => FlightDescriptor::new_cmd(ticket.to_vec()),
    }
}
