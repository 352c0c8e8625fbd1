//! What `wit-bindgen` makes of the contract, in worlds that can be combined.
//!
//! [`base`] is what every provider is; each optional interface has a world of its own, so that a component
//! exports those that it implements and no others. All worlds share the types of `base`. Nothing here is
//! written by hand, and nothing here decides anything: use the crate's own words where there are any.

#![allow(
    missing_docs,
    clippy::all,
    reason = "generated; the contract documents each"
)]

/// `world provider`: the imports, and the export that every provider has.
pub mod base {
    wit_bindgen::generate!({
        world: "provider",
        path: "../wit",
        pub_export_macro: true,
        generate_unused_types: true,
        additional_derives: [PartialEq],
        additional_derives_ignore: ["piece"],
    });
}

/// `interface execution`.
pub mod execution {
    wit_bindgen::generate!({
        inline: "package leasehold:sdk-execution; world exports-execution { export leasehold:provider/execution@0.1.0; }",
        path: "../wit",
        pub_export_macro: true,
        with: {
            "leasehold:provider/types@0.1.0": crate::bindings::base::leasehold::provider::types,
            "leasehold:provider/http@0.1.0": crate::bindings::base::leasehold::provider::http,
            "leasehold:provider/streams@0.1.0": crate::bindings::base::leasehold::provider::streams,
            "leasehold:provider/execution@0.1.0": generate,
        },
        additional_derives: [PartialEq],
        additional_derives_ignore: ["started"],
    });
}

/// `interface files`.
pub mod files {
    wit_bindgen::generate!({
        inline: "package leasehold:sdk-files; world exports-files { export leasehold:provider/files@0.1.0; }",
        path: "../wit",
        pub_export_macro: true,
        with: {
            "leasehold:provider/types@0.1.0": crate::bindings::base::leasehold::provider::types,
            "leasehold:provider/http@0.1.0": crate::bindings::base::leasehold::provider::http,
            "leasehold:provider/files@0.1.0": generate,
        },
    });
}

/// `interface suspension`.
pub mod suspension {
    wit_bindgen::generate!({
        inline: "package leasehold:sdk-suspension; world exports-suspension { export leasehold:provider/suspension@0.1.0; }",
        path: "../wit",
        pub_export_macro: true,
        with: {
            "leasehold:provider/types@0.1.0": crate::bindings::base::leasehold::provider::types,
            "leasehold:provider/suspension@0.1.0": generate,
        },
    });
}
