// What `provider.js` offers, for editors and type checkers; what the contract says stands in `contract/`.

/// <reference path="contract/types.d.ts" />
/// <reference path="contract/host.d.ts" />
/// <reference path="contract/http.d.ts" />
/// <reference path="contract/streams.d.ts" />
/// <reference path="contract/ssh.d.ts" />
/// <reference path="contract/lifecycle.d.ts" />
/// <reference path="contract/execution.d.ts" />
/// <reference path="contract/files.d.ts" />
/// <reference path="contract/suspension.d.ts" />

import type * as lifecycle from "leasehold:provider/lifecycle@0.1.0";
import type { Duplex } from "leasehold:provider/streams@0.1.0";
import type { Code, Context, Error as Failure, FieldViolation } from "leasehold:provider/types@0.1.0";

export type { Lifecycle } from "leasehold:provider/lifecycle@0.1.0";
export type { Execution } from "leasehold:provider/execution@0.1.0";
export type { Files } from "leasehold:provider/files@0.1.0";
export type { Suspension } from "leasehold:provider/suspension@0.1.0";

/** What a manifest is made of; see `lifecycle.Manifest` for what each means. */
export interface Said {
    key: string;
    version: string;
    title?: string;
    summary?: string;
    driver?: lifecycle.Driver;
    /** JSON Schema 2020-12 of the configuration, as an object. */
    schema?: object;
    image?: lifecycle.ImageBinding | null;
    request?: {
        origins?: string[];
        ssh?: boolean;
        streams?: boolean;
        limits?: Partial<lifecycle.Limits>;
    };
    credentials?: lifecycle.Credential[];
    mints?: lifecycle.Mint[];
    operations?: lifecycle.Operation[];
    checks?: (Omit<lifecycle.Check, "credential" | "apart"> & Partial<lifecycle.Check>)[];
    features?: Partial<lifecycle.Features>;
    acquireTimeout?: number;
}

export function manifest(said: Said): lifecycle.Manifest;

export function header(name: string, template: string): lifecycle.Site;
export function basic(username: string): lifecycle.Site;
export function registryAuth(): lifecycle.Site;

export function create(id: string, labels?: string | null): lifecycle.Role;
export function createChild(id: string, labels?: string | null): lifecycle.Role;
export function act(): lifecycle.Role;
export function read(): lifecycle.Role;
export function shared(): lifecycle.Role;

export function status(code: number): lifecycle.Expectation;
export function ownerLabel(pointer: string): lifecycle.Expectation;
export function absentFrom(list: string, id: string): lifecycle.Expectation;

export function failure(
    code: Code,
    message: string,
    more?: { retryAfter?: number | null; violations?: FieldViolation[] | null },
): Failure;
export function invalidConfig(violations: FieldViolation[]): Failure;
export function isFailure(thrown: unknown, ...codes: Code[]): thrown is Failure;

/** How a request is asked. */
export interface Options {
    /** A token, or its placeholder, for the header `authorization`. */
    bearer?: string | null;
    headers?: Record<string, string>;
    query?: Record<string, string | number | boolean>;
    /** A value, sent as JSON. */
    json?: unknown;
    /** Milliseconds. */
    timeout?: number | null;
    /** Minted values to keep: pointers, and the names under which later calls find them. */
    keep?: Record<string, string>;
}

/** An answer whose status was expected. */
export interface Answer {
    status: number;
    header(name: string): string | null;
    text: string;
    json(): any;
}

export function ask(method: string, url: string, options: Options & { expect: number[] }): Answer;
export function upgrade(method: string, url: string, protocol: string, options?: Options): Duplex;

export function info(step: string, message: string): lifecycle.Finding;
export function warning(step: string, message: string): lifecycle.Finding;
export function failed(step: string, error: unknown): lifecycle.Finding;
export function acquired(
    resource: string,
    handle: unknown,
    workspace: string,
    ttl?: number | null,
): lifecycle.Acquired;
export function observation(condition: lifecycle.Condition, message?: string | null): lifecycle.Observation;
export function listed(
    resource: string,
    handle: unknown,
    labels: Record<string, string>,
    condition?: lifecycle.Condition,
): lifecycle.Listed;
export function wants(query: lifecycle.Query, resource: string, labels: Record<string, string>): boolean;
export function labelsOf(context: Context): Record<string, string>;
export function acquisitionOf(context: Context): string;
